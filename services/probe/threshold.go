package probe

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// The API server's defaults, for pods that didn't come through it.
const (
	defaultPeriod           = 10
	defaultSuccessThreshold = 1
	defaultFailureThreshold = 3
)

// Threshold counts how many runs in a row ended alike.
type Threshold struct {
	success bool
	run     int32
}

// next is the count after one more run.
func (t Threshold) next(success bool) Threshold {
	if t.run > 0 && t.success == success {
		return Threshold{success, t.run + 1}
	}
	return Threshold{success, 1}
}

// reached reports whether the runs in a row decide the probe.
func (t Threshold) reached(spec *corev1.Probe) bool {
	if t.success {
		return t.run >= cmp.Or(spec.SuccessThreshold, defaultSuccessThreshold)
	}
	return t.run >= cmp.Or(spec.FailureThreshold, defaultFailureThreshold)
}
