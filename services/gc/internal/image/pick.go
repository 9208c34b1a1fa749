package image

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

// Reasons of removals, as the metric kubelet_image_garbage_collected_total has them.
const (
	forAge   = "age"
	forSpace = "space"
)

// Policy is when images go. A zero MaxAge means never for their age.
type Policy struct {
	High, Low      int // per cent of the filesystem
	MinAge, MaxAge time.Duration
}

// Record is what is known of an image besides what the runtime says.
type Record struct {
	FirstSeen time.Time `json:"firstSeen"`
	LastUsed  time.Time `json:"lastUsed,omitzero"`
	// LastLooked is when gc last looked whether it is used; earlier releases have not kept that.
	LastLooked time.Time `json:"lastLooked,omitzero"`
	Loaded     int       `json:"-"` // by how many looks an earlier process's record has still to be confirmed
}

// since is when the image was last of use.
func (r Record) since() time.Time {
	if r.LastUsed.After(r.FirstSeen) {
		return r.LastUsed
	}
	return r.FirstSeen
}

// Filesystem is the size of the images' filesystem and what is available of it, in bytes.
type Filesystem struct{ Capacity, Available int64 }

// Used is how full it is, in per cent, as the kubelet reckons it.
func (f Filesystem) Used() int {
	if f.Capacity <= 0 {
		return 0
	}
	return 100 - int(min(f.Available, f.Capacity)*100/f.Capacity)
}

// Input is what is decided from.
type Input struct {
	Policy Policy
	Images []*runtimeapi.Image
	// InUse says who uses an image, by its key.
	InUse   map[string]string
	Records map[string]Record
	FS      Filesystem
	Now     time.Time
	// Squeeze takes all unused images, as is done under disk pressure.
	Squeeze bool
	// Begun continues until the low threshold is reached, although the high one isn't any more: what images free is known
	// only once they are gone, since they share layers.
	Begun bool
}

// Choice is an image and what is done with it.
type Choice struct {
	topic.Decision
	Key   string
	Image *runtimeapi.Image
	// Why is forAge or forSpace where it goes.
	Why string
	// Young ones would go if they were older.
	Young bool
}

// Key is what an image is known by: its ID, and the runtime handler it was pulled for where there is one.
func Key(i *runtimeapi.Image) string {
	if handler := i.GetSpec().GetRuntimeHandler(); handler != "" {
		return i.GetId() + "," + handler
	}
	return i.GetId()
}

// ToFree is how many bytes must be freed: none below the high threshold, unless it has begun; else what there is down
// to the low one.
func ToFree(p Policy, f Filesystem, begun bool) int64 {
	if f.Capacity <= 0 || p.High >= 100 || f.Used() < p.High && !begun {
		return 0
	}
	return max(f.Capacity*int64(100-p.Low)/100-f.Available, 0)
}

// Pick decides about every image, those to go in the order in which to remove them.
func Pick(in Input) []Choice {
	free, because := ToFree(in.Policy, in.FS, in.Begun), ""
	switch {
	case in.Squeeze:
		free, because = math.MaxInt64, "unused, and the node is short of disk space"
	case free > 0:
		because = fmt.Sprintf("unused; the images' filesystem is %d%% full (high threshold %d%%): %d bytes are to be "+
			"freed, down to %d%%",
			in.FS.Used(), in.Policy.High, free, in.Policy.Low)
	}
	var going, staying []Choice
	for _, c := range in.sorted() {
		record := in.Records[c.Key]
		unused := in.Now.Sub(record.since())
		switch {
		case in.InUse[c.Key] != "":
			c.Reason = "in use by " + in.InUse[c.Key]
		case c.Image.GetPinned():
			c.Reason = "pinned by the runtime"
		case in.Policy.MaxAge > 0 && unused > in.Policy.MaxAge && record.Loaded == 0:
			c.Why, c.Reason = forAge, fmt.Sprintf("unused for %s, longer than imageMaximumGCAge (%s)",
				round(unused), in.Policy.MaxAge)
		case free <= 0 && because != "":
			c.Reason = fmt.Sprintf("unused for %s; others that have been unused for longer free enough", round(unused))
		case free <= 0:
			c.Reason = fmt.Sprintf("unused for %s; the images' filesystem is %d%% full, the high threshold is %d%%",
				round(unused), in.FS.Used(), in.Policy.High)
		case in.Now.Sub(record.FirstSeen) < in.Policy.MinAge:
			c.Young = true
			c.Reason = fmt.Sprintf("seen for the first time %s ago, less than imageMinimumGCAge (%s)",
				round(in.Now.Sub(record.FirstSeen)), in.Policy.MinAge)
		default:
			c.Why, c.Reason = forSpace, because
		}
		if c.Why == "" {
			c.Action = topic.ActionKeep
			staying = append(staying, c)
			continue
		}
		free -= int64(c.Image.GetSize())
		going = append(going, c)
	}
	return append(going, staying...)
}

// sorted are the images, who would go first first.
func (in Input) sorted() []Choice {
	all := make([]Choice, 0, len(in.Images))
	for _, i := range in.Images {
		all = append(all, Choice{Key: Key(i), Image: i, Decision: topic.Decision{
			Action: topic.ActionRemoveImage, Object: nameOf(i), FreedBytes: i.GetSize(),
		}})
	}
	slices.SortStableFunc(all, func(a, b Choice) int {
		x, y := in.Records[a.Key], in.Records[b.Key]
		return cmp.Or(x.LastUsed.Compare(y.LastUsed), x.FirstSeen.Compare(y.FirstSeen), strings.Compare(a.Key, b.Key))
	})
	return all
}

// nameOf is what a person calls the image.
func nameOf(i *runtimeapi.Image) string {
	return slices.Concat(i.GetRepoTags(), i.GetRepoDigests(), []string{i.GetId()})[0]
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
