package soak

import (
	"fmt"
	"maps"
	"slices"

	"kubelot.dev/test/bench/crew"
)

// quantity is one thing of which there must not be more for each pod that came and went.
type quantity struct {
	name string
	unit string
	// limit is the growth per pod that is no failure, and why says so.
	limit float64
	why   string
}

// The limits. None is zero: a fit never gives exactly that, and what follows from the size of pages or blocks isn't
// a leak.
var (
	private = quantity{
		"private memory", "B", 128,
		"20,000 pods may take a tenth of the 25 MiB that the bus is given; spans in part empty hide as much",
	}
	pss  = quantity{"PSS of all processes", "B", 1280, "ten processes with 128 B each"}
	heap = quantity{
		"heap after collection", "B", 32,
		"the least that is kept of a pod is its UID, a string of 36 bytes and its header",
	}
	routine = quantity{"goroutines", "", 0.001, "one for a thousand pods would be a leak on a path that few pods take"}
	handles = quantity{"descriptors", "", 0.001, "at one for a thousand pods, a million pods reach the usual limit"}
	files   = quantity{
		"files", "", 0.001,
		"a directory for each pod would be 1, one for a thousand is a leak on a path that few pods take",
	}
	bytes   = quantity{"bytes in files", "B", 32, "the least that is kept of a pod is a line with its UID"}
	kept    = quantity{"messages kept", "", 0.001, "a message for each pod would be 1"}
	subject = quantity{"subjects", "", 0.001, "a subject for each pod would be 1; each costs the bus's memory too"}
)

// Names of what is measured, with the stream's after the second.
const (
	storeName  = "bus's store"
	streamName = "stream "
)

// series is one measure of one thing over the samples.
type series struct {
	quantity
	of   string
	pods []float64
	y    []float64
}

// collect makes the series of all samples. What a process doesn't tell is left out.
func collect(samples []Sample) []series {
	found := map[string]*series{}
	add := func(of string, m quantity, s Sample, y int64) {
		key := of + "\x00" + m.name
		if found[key] == nil {
			found[key] = &series{quantity: m, of: of}
		}
		found[key].pods = append(found[key].pods, float64(s.Pods))
		found[key].y = append(found[key].y, float64(y))
	}
	for _, s := range samples {
		for _, p := range s.Processes {
			add("kubelot-"+p.Name, private, s, p.Private)
			add("kubelot-"+p.Name, handles, s, int64(p.Descriptors))
			if p.Heap != nil {
				add("kubelot-"+p.Name, heap, s, *p.Heap)
			}
			if p.Goroutines != nil {
				add("kubelot-"+p.Name, routine, s, int64(*p.Goroutines))
			}
		}
		add("crew", pss, s, s.PSS())
		add("run directory", files, s, s.Run.Count)
		add("root directory", files, s, s.Root.Count)
		add("root directory", bytes, s, s.Root.Bytes)
		add(storeName, bytes, s, beyondHistories(s.Reading))
		for _, stream := range s.Streams {
			if !stream.History {
				add(streamName+stream.Name, kept, s, stream.Messages)
				add(streamName+stream.Name, subject, s, stream.Subjects)
			}
		}
	}
	all := make([]series, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[key])
	}
	return all
}

// beyondHistories are the bytes of the store without the streams that drop their oldest messages: those grow up to a
// size that is set, which full judges, and what they have less than that on the way there says nothing about pods.
func beyondHistories(r crew.Reading) int64 {
	rest := r.Store.Bytes
	for _, stream := range r.Streams {
		if stream.History {
			rest -= stream.Files.Bytes
		}
	}
	return rest
}

// blockShare is how much more than its limit a history's files may have: messages are dropped by the block.
const blockShare = 1.5

// full is an error where a history has grown beyond what it is limited to.
func full(r crew.Reading) error {
	for _, stream := range r.Streams {
		if stream.History && float64(stream.Files.Bytes) > blockShare*float64(stream.MaxBytes) {
			return fmt.Errorf("stream %s has %d bytes in files and is limited to %d", stream.Name, stream.Files.Bytes,
				stream.MaxBytes)
		}
	}
	return nil
}
