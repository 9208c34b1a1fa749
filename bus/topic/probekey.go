package topic

import (
	"strings"

	"kubelot.dev/bus"
)

// ProbeKey names a probe of a container. Its text is the key of ProbeResult.
type ProbeKey struct {
	UID       string // of the pod
	Container string
	Kind      string // ProbeStartup, ProbeLiveness or ProbeReadiness
}

func (k ProbeKey) String() string { return bus.Key(k.UID, k.Container, k.Kind) }

// ParseProbeKey is the inverse of String. ok is false for a text that is no key of a probe.
func ParseProbeKey(text string) (k ProbeKey, ok bool) {
	tokens := strings.Split(text, ".")
	if len(tokens) != 3 {
		return ProbeKey{}, false
	}
	k = ProbeKey{UID: tokens[0], Container: tokens[1], Kind: tokens[2]}
	switch k.Kind {
	case ProbeStartup, ProbeLiveness, ProbeReadiness:
		return k, true
	}
	return ProbeKey{}, false
}
