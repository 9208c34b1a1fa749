package evict

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/daemon/config"
)

// Value is a threshold's or what is reclaimed beyond it.
type Value struct{ config.EvictionValue }

// of is the value as a quantity of the signal, of a capacity.
func (v Value) of(s Signal, capacity int64) *resource.Quantity {
	if v.Quantity != nil {
		q := v.Quantity.DeepCopy()
		return &q
	}
	// The kubelet shows shares of inodes and processes in this format too.
	return resource.NewQuantity(int64(float64(capacity)*v.Share), resource.BinarySI)
}

// Threshold is a figure that must stay available.
type Threshold struct {
	Signal Signal
	Hard   bool
	Value  Value
	// Grace is how long a soft threshold must be met before pods are evicted.
	Grace time.Duration
	// Reclaim is how much more must be available before the threshold counts as relieved, once pods were to be evicted.
	Reclaim *Value
}

// String is the threshold as in the configuration.
func (t Threshold) String() string {
	if t.Value.Quantity != nil {
		return fmt.Sprintf("%s %s<%s", kind(t), t.Signal, t.Value.Quantity)
	}
	percent := math.Round(t.Value.Share*1e6) / 1e4 // a share isn't precise
	return fmt.Sprintf("%s %s<%s%%", kind(t), t.Signal, strconv.FormatFloat(percent, 'f', -1, 64))
}

// Figures is what is available, and the threshold.
func (t Threshold) Figures(o Observation) string {
	return fmt.Sprintf("%s available of %s, threshold %s", t.Signal.quantity(o.Available), t.Signal.quantity(o.Capacity),
		t.Value.of(t.Signal, o.Capacity))
}

// Settings are the fields of the configuration that make thresholds.
type Settings struct {
	Hard, Soft, SoftGrace, Reclaim map[string]string
	// EnforcePods adds the threshold on what pods may have of the memory to one on the node's (enforceNodeAllocatable has
	// pods).
	EnforcePods bool
}

// Thresholds parses the configuration. Memory comes first, and of each signal the hard threshold.
// The signals of containerfs have no thresholds of their own: they follow those of nodefs or imagefs, as KEP-4191 says.
func Thresholds(s Settings) ([]Threshold, error) {
	var all []Threshold
	for _, kind := range []struct {
		values map[string]string
		hard   bool
	}{{s.Hard, true}, {s.Soft, false}} {
		for _, name := range slices.Sorted(maps.Keys(kind.values)) {
			t := Threshold{Signal: Signal(name), Hard: kind.hard}
			if t.Signal == ContainerFSAvailable || t.Signal == ContainerFSInodes || config.NoThreshold(kind.values[name]) {
				continue
			}
			if err := t.parse(kind.values[name], s); err != nil {
				return nil, err
			}
			all = append(all, t)
			if s.EnforcePods && t.Hard && t.Signal == MemoryAvailable {
				t.Signal = AllocatableAvailable
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Threshold) int {
		// hard ones are before soft ones already
		return cmp.Or(cmp.Compare(rank(a.Signal), rank(b.Signal)), cmp.Compare(a.Signal, b.Signal))
	})
	return all, nil
}

// ForLayout adds the thresholds of a filesystem of containers that is neither the images' nor the root directory's.
func ForLayout(all []Threshold, split bool) []Threshold {
	out := slices.Clone(all)
	follow := map[Signal]Signal{NodeFSAvailable: ContainerFSAvailable, NodeFSInodes: ContainerFSInodes}
	for _, t := range all {
		if as, ok := follow[t.Signal]; ok && split {
			t.Signal = as
			out = append(out, t)
		}
	}
	return out
}

func (t *Threshold) parse(text string, s Settings) error {
	value, err := config.ParseEvictionValue(text)
	if err != nil {
		return fmt.Errorf("eviction threshold of %s is %q: %w", t.Signal, text, err)
	}
	t.Value = Value{value}
	if text, ok := s.Reclaim[string(t.Signal)]; ok {
		value, err := config.ParseEvictionValue(text)
		if err != nil {
			return fmt.Errorf("evictionMinimumReclaim of %s is %q: %w", t.Signal, text, err)
		}
		t.Reclaim = &Value{value}
	}
	if t.Hard {
		return nil
	}
	text = s.SoftGrace[string(t.Signal)]
	if t.Grace, err = time.ParseDuration(text); err != nil || t.Grace < 0 {
		return fmt.Errorf("evictionSoftGracePeriod of %s is %q: each soft threshold needs one, such as 1m30s", t.Signal, text)
	}
	return nil
}

// rank has memory first: nothing kills a node faster.
func rank(s Signal) int { return slices.Index(conditions[:], s.Condition()) }

// before sorts what is true before what isn't.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
