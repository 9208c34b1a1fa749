package resource

import (
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/fault"
)

// standing is the daemon's health with what is wrong with its configuration, for as long as it runs.
type standing struct {
	daemon.HealthReporter
	state topic.HealthState
	text  string
}

// withFaults has the faults told with the daemon's health. With a severe one the daemon isn't healthy, so that the node
// isn't Ready.
func withFaults(whole daemon.HealthReporter, faults []fault.Fault) daemon.HealthReporter {
	if len(faults) == 0 {
		return whole
	}
	text, severe := fault.Text(faults)
	if severe {
		return standing{whole, topic.Unhealthy, text}
	}
	return standing{whole, topic.Degraded, text}
}

// Set implements daemon.HealthReporter.
func (h standing) Set(state topic.HealthState, message string) {
	switch {
	case state == topic.Healthy || message == "":
		message = h.text
	default:
		message = h.text + ". " + message
	}
	if h.state == topic.Unhealthy || state == topic.Healthy {
		state = h.state
	}
	h.HealthReporter.Set(state, message)
}
