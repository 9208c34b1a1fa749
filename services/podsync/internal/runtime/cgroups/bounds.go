package cgroups

import (
	"errors"
	"fmt"

	"kubelot.dev/cri/cgroupname"
)

// bounds are the memory limits of the lower classes, in bytes; 0 is none.
type bounds struct{ burstable, bestEffort int64 }

// boundsOf keeps a part of what a class requests from the classes below it.
func boundsOf(r Requests, percent, allocatable int64) bounds {
	burstable := allocatable - r.GuaranteedMemory*percent/100
	return bounds{burstable: burstable, bestEffort: burstable - r.BurstableMemory*percent/100}
}

// bound sets the memory limits of the lower classes, where qosReserved asks for them. A class that uses more keeps what
// it uses: it can't grow, and nothing of it is killed. That is an error, so that the limit is tried again.
func (c *classes) bound(r Requests) error {
	if c.memory.Percent == nil || c.allocatable <= 0 {
		return nil
	}
	want := boundsOf(r, *c.memory.Percent, c.allocatable)
	return errors.Join(
		c.boundClass(c.burstable(), want.burstable, &c.has.bounds.burstable),
		c.boundClass(c.at.kubepods.Child(cgroupname.BestEffort), want.bestEffort, &c.has.bounds.bestEffort),
	)
}

func (c *classes) boundClass(n cgroupname.Name, want int64, has *int64) error {
	// The library takes 0 for no change, as it does for the kubelet that has nothing left for the class.
	if want == *has || want <= 0 {
		return nil
	}
	usage, err := c.usage(n)
	if err != nil {
		return err
	}
	limit := max(want, int64(usage))
	if err := c.write(n, Limits{Memory: limit}); err != nil {
		return err
	}
	if *has = limit; limit > want {
		return &LimitsError{
			Cgroup: c.at.path(n),
			Err:    fmt.Errorf("its pods use more memory than the %d bytes that qosReserved leaves them", want),
		}
	}
	return nil
}
