package stats

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the last readings of volumes and logs among the daemon's metrics, under the kubelet's names. It waits
// for no disk: what is old is read for the next time.
type collector struct {
	answers *answers
	// reading is locked while that goes on.
	reading sync.Mutex
}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

var (
	volumeDescs = []*prometheus.Desc{
		volumeDesc("capacity_bytes", "[ALPHA] Capacity in bytes of the volume"),
		volumeDesc("available_bytes", "[ALPHA] Number of available bytes in the volume"),
		volumeDesc("used_bytes", "[ALPHA] Number of used bytes in the volume"),
		volumeDesc("inodes", "[ALPHA] Maximum number of inodes in the volume"),
		volumeDesc("inodes_free", "[ALPHA] Number of free inodes in the volume"),
		volumeDesc("inodes_used", "[ALPHA] Number of used inodes in the volume"),
	}
	logDesc = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
		"[ALPHA] Bytes used by the container's logs on the filesystem.", []string{"uid", "namespace", "pod", "container"},
		nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range append(volumeDescs, logDesc) {
		out <- d
	}
}

// Collect implements prometheus.Collector. A claim that several pods have is shown once.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errSlow) // the other metrics wait for it
	defer cancel()
	// Without a view there is nothing to show: the daemon begins or ends.
	v, err := c.answers.view(ctx, nil)
	if err == nil {
		c.answers.aside(ctx, func(ctx context.Context) { c.read(ctx, v) })
	}
	s, seen := c.answers.sources, map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.pods {
		p := &v.pods[i]
		if cell := s.files[filesPart(p.ref.UID)]; cell != nil {
			for name, used := range cell.Peek().Value.logs {
				out <- prometheus.MustNewConstMetric(logDesc, prometheus.GaugeValue, float64(used.Bytes), p.ref.UID,
					p.ref.Namespace, p.ref.Name, name)
			}
		}
		for _, volume := range p.volumes {
			cell, claim := s.volumes[volumePart(p.ref.UID, volume.name)], p.ref.Namespace+"/"+volume.claim
			if volume.claim == "" || seen[claim] || cell == nil || cell.Peek().At.IsZero() {
				continue
			}
			seen[claim] = true
			u := cell.Peek().Value
			for i, n := range []uint64{
				u.fs.Capacity, u.fs.Available, u.usage.Bytes, u.fs.Inodes,
				u.fs.InodesFree, u.usage.Inodes,
			} {
				out <- prometheus.MustNewConstMetric(volumeDescs[i], prometheus.GaugeValue, float64(n),
					p.ref.Namespace, volume.claim)
			}
		}
	}
}

// read reads the logs and the volumes of claims that the next collection shows, where they are old.
func (c *collector) read(ctx context.Context, v view) {
	if !c.reading.TryLock() {
		return
	}
	defer c.reading.Unlock()
	c.answers.sources.keep(v.pods) // before the disks are waited for: pods that come meanwhile aren't in the view
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	pods := slices.Clone(v.pods)
	for i := range pods {
		pods[i].volumes = slices.DeleteFunc(slices.Clone(pods[i].volumes), func(v volumeView) bool { return v.claim == "" })
	}
	age := c.answers.volumeAge
	c.answers.podDisks(ctx, &figures{view: view{pods: pods}}, max(diskAge, age), age)
}
