package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
)

const (
	// firstReport is how long it may take to give the files of a volume to a group before an Event says so, and
	// nextReport the pause between what is said then. The reason and the words are the kubelet's.
	firstReport    = 30 * time.Second
	nextReport     = time.Minute
	reasonProgress = "VolumePermissionChangeInProgress"
)

// progress reports how far the work on a volume with many files is.
type progress struct {
	request Request
	name    string
	next    time.Time
	// alive is when the daemon was told that the work goes on.
	alive time.Time
	said  bool
}

// GiveToGroup gives the files of the volume, which are at path, to the fsGroup that the pod has, and reports how far it
// is. kind is the kubelet's name of the plug-in; that of a driver may follow after a colon.
func GiveToGroup(ctx context.Context, r Request, kind, volume, path string) error {
	now := time.Now()
	plugin, _, _ := strings.Cut(kind, ":")
	name := filepath.Join(string(r.Pod.UID), VolumesDir, strings.ReplaceAll(plugin, "/", "~"), volume)
	p := &progress{request: r, name: name, next: now.Add(firstReport), alive: now}
	ended := Operation(ctx, "volume_apply_access_control", kind)
	err := mounts.GiveToGroup(ctx, path, *payload.FSGroup(r.Pod), p.step)
	ended(err)
	return err
}

// step is called again and again with the number of files that are done.
func (p *progress) step(files int) {
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

// Mapped records the kubelet's Events of a device that the pod has got: at a point in the plug-in's directory, and by a
// link in its own.
func (r Request) Mapped(volume, point, link string) {
	for _, at := range [][2]string{{"globalMapPath", point}, {"volumeMapPath", link}} {
		r.Calls.Tell(topic.Event{
			Kind: "Pod", Ref: topic.RefOf(r.Pod), Type: "Normal", Reason: "SuccessfulMountVolume", Message: fmt.Sprintf(
				"MapVolume.MapPodDevice succeeded for volume %q %s %q", volume, at[0], filepath.Dir(at[1])),
		})
	}
}
