package soak

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// BusGoal is what kubelot-bus may hold, in bytes: its private memory and its store, which is memory too.
const BusGoal = 25 << 20

// BusTable writes what the bus held at each mark.
func BusTable(w io.Writer, samples []Sample, marks []int) error {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "pods\tbus: private\tstore\tboth\theap\tdaemons: private\tPSS of all\trun directory\t")
	for _, s := range At(samples, marks) {
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
	for _, s := range At(samples, marks) {
		for _, stream := range s.Streams {
			fmt.Fprintf(out, "%d\t%s\t%d\t%d\t%s\t%s\t%s\t\n", s.Pods, stream.Name, stream.Messages, stream.Subjects,
				mib(stream.Bytes), mib(stream.Files.Bytes), mib(stream.MaxBytes))
		}
	}
	return out.Flush()
}

// BusVerdict is an error where the bus held more than its goal at a mark.
func BusVerdict(samples []Sample, marks []int) error {
	for _, s := range At(samples, marks) {
		bus, err := s.Bus()
		if err != nil {
			return err
		}
		if both := bus.Private + s.Store.Bytes; both > BusGoal {
			return fmt.Errorf("after %d pods kubelot-bus holds %s in private memory and %s in its store, more than %s together",
				s.Pods, mib(bus.Private), mib(s.Store.Bytes), mib(BusGoal))
		}
	}
	return nil
}

// At are the samples at the marks.
func At(samples []Sample, marks []int) []Sample {
	var found []Sample
	for _, mark := range marks {
		for _, s := range samples {
			if s.Pods >= mark {
				found = append(found, s)
				break
			}
		}
	}
	return found
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
