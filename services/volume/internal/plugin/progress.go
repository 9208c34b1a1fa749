package plugin

import (
	"fmt"
	"time"
)

const (
	// firstReport is how long it may take to give the files of a volume to a group before an Event says so, and
	// nextReport the pause between what is said then. The reason and the words are the kubelet's.
	firstReport    = 30 * time.Second
	nextReport     = time.Minute
	reasonProgress = "VolumePermissionChangeInProgress"
)

// Progress reports how far the work on a volume with many files is.
type Progress struct {
	request Request
	name    string
	next    time.Time
	// alive is when the daemon was told that the work goes on.
	alive time.Time
	said  bool
}

// NewProgress is of the work that begins now, on the volume of that name.
func NewProgress(r Request, name string) *Progress {
	now := time.Now()
	return &Progress{request: r, name: name, next: now.Add(firstReport), alive: now}
}

// Step is called again and again with the number of files that are done.
func (p *Progress) Step(files int) {
	now := time.Now()
	if now.Sub(p.alive) >= firstReport {
		p.alive = now
		p.request.Calls.Alive()
	}
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(nextReport)
	message := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", p.name, files)
	if !p.said {
		p.said = true
		message = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using "+
			"OnRootMismatch - "+
			"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", p.name)
	}
	p.request.Calls.Warn(reasonProgress, message)
}
