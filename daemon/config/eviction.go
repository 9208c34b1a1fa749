package config

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// EvictionValue is a value of evictionHard, evictionSoft or evictionMinimumReclaim: a share of the capacity (0 to 1)
// or, where Quantity is set, an absolute figure. A share has the precision of 32 bits, as the kubelet's has: what a
// share holds back of the memory must be the same figure to the byte, since reservedMemory must match it.
type EvictionValue struct {
	Share    float64
	Quantity *resource.Quantity
}

// ParseEvictionValue reads a value such as 10% or 100Mi. The error says what is wanted.
func ParseEvictionValue(text string) (EvictionValue, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(percent, 32)
		if inRange := share >= 0 && share <= 100; err != nil || !inRange { // NaN is in no range
			return EvictionValue{}, errors.New("want a percentage from 0% to 100%")
		}
		return EvictionValue{Share: float64(float32(share) / 100)}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return EvictionValue{}, errors.New("want a quantity such as 500m or 256Mi")
	}
	if q.Sign() < 0 {
		return EvictionValue{}, errors.New("must not be negative")
	}
	return EvictionValue{Quantity: &q}, nil
}

// NoThreshold reports whether the value of a threshold switches it off, as in the kubelet.
func NoThreshold(text string) bool { return text == "0%" || text == "100%" }
