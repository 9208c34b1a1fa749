package soak

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// BusGoal is what kubelot-bus may hold, in bytes: its private memory and its store, which is memory too.
const BusGoal = 25 << 20

const (
	// busNoise is by how much two readings of what the bus holds at rest may differ while it keeps nothing: its heap ends
	// a little larger or smaller after each collection, and some blocks of its store are in use in part.
	busNoise = 2 << 20
	// keptNoise is likewise for the messages of a stream: the node's own state is among them.
	keptNoise = 20
)

// BusTable writes what the bus held at each long rest.
func BusTable(w io.Writer, samples []Sample) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "pods\tbus: private\tstore\tboth\theap\tdaemons: private\tPSS of all\trun directory\t")
	for _, s := range rests(samples) {
		bus, err := s.Bus()
		if err != nil {
			return err
		}
		heap := "-"
		if bus.Heap != nil {
			heap = mib(*bus.Heap)
		}
		others := int64(0)
		for _, p := range s.Processes {
			if p.Name != "bus" {
				others += p.Private
			}
		}
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", s.Pods, mib(bus.Private), mib(s.Store.Bytes),
			mib(bus.Private+s.Store.Bytes), heap, mib(others), mib(s.PSS()), mib(s.Run.Bytes))
	}
	fmt.Fprintln(out)
	if err := out.Flush(); err != nil {
		return err
	}
	out = tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "pods\tstream\tmessages\tsubjects\tbytes\tin files\tlimit\t")
	for _, s := range rests(samples) {
		for _, stream := range s.Streams {
			fmt.Fprintf(out, "%d\t%s\t%d\t%d\t%s\t%s\t%s\t\n", s.Pods, stream.Name, stream.Messages, stream.Subjects,
				mib(stream.Bytes), mib(stream.Files.Bytes), mib(stream.MaxBytes))
		}
	}
	return out.Flush()
}

// BusVerdict is an error where the bus held more than the goal at a long rest, if that isn't 0, where it held more at
// the last one than at the first, or where too few pods have gone between the two to see that.
func BusVerdict(samples []Sample, goal int64) error {
	rested := rests(samples)
	var errs []error
	for _, s := range rested {
		bus, err := s.Bus()
		if err != nil {
			return err
		}
		if both := bus.Private + s.Store.Bytes; goal > 0 && both > goal {
			errs = append(errs, fmt.Errorf(
				"after %d pods kubelot-bus holds %s in private memory and %s in its store, more than %s together",
				s.Pods, mib(bus.Private), mib(s.Store.Bytes), mib(goal)))
		}
	}
	if len(rested) < 2 {
		return errors.Join(append(errs, errors.New("the crew had no two long rests: what the bus keeps can't be seen"))...)
	}
	first, last := rested[0], rested[len(rested)-1]
	if need, gone := busNoise/(unseen*private.limit), float64(last.Pods-first.Pods); gone < need {
		errs = append(errs, fmt.Errorf("%.0f pods came and went between the first long rest and the last, and it takes %.0f "+
			"to see whether the bus grows: let it run %.1f times as long", gone, need, need/max(1, gone)))
	}
	return errors.Join(append(errs, busGrowth(first, last))...)
}

// busGrowth is an error where the bus holds more than it did. The histories don't count: they grow up to a size that is
// set.
func busGrowth(first, last Sample) error {
	holds := func(s Sample) int64 {
		bus, _ := s.Bus() // it is there, as BusVerdict has seen
		return bus.Private + beyondHistories(s.Reading)
	}
	var errs []error
	if before, after := holds(first), holds(last); after-before > busNoise {
		errs = append(errs, fmt.Errorf("kubelot-bus grows: it holds %s in private memory and its store, without the "+
			"histories, after %d pods, and %s after %d; %s more may be chance", mib(before), first.Pods, mib(after), last.Pods,
			mib(busNoise)))
	}
	before := map[string]int64{}
	for _, stream := range first.Streams {
		before[stream.Name] = stream.Messages
	}
	for _, stream := range last.Streams {
		if !stream.History && stream.Messages-before[stream.Name] > keptNoise {
			errs = append(errs, fmt.Errorf("stream %s of the bus grows: it keeps %d messages after %d pods, and %d after %d",
				stream.Name, before[stream.Name], first.Pods, stream.Messages, last.Pods))
		}
	}
	return errors.Join(errs...)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
