package worker

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// containers are a pod's containers by name.
type containers map[string]*container

// container is what a worker knows of a container besides the runtime's report.
type container struct {
	image  *ready                 // made present for the next start; nil if none is
	busy   bool                   // it is being started, or its postStart hook runs
	probes map[string]topic.Probe // the last verdicts, by kind
	// the restart count at which the crash back-off started over; nil before the first reading
	backoff   *int
	announced bool            // there was an Event about its back-off
	anew      bool            // a person wants its image pulled without a back-off
	runs      map[string]*run // by container ID
}

// run is what a worker knows of one run of a container.
type run struct {
	plan.RunFacts
	message *string   // the termination message; nil as long as it isn't known
	reading time.Time // since when that is being read; zero if it isn't
}

// ready are images that were made present for a container whose image had that name then.
type ready struct {
	name string
	Images
}

// of is the record of the container, which is made if need be.
func (cs containers) of(name string) *container {
	c := cs[name]
	if c == nil {
		c = &container{}
		cs[name] = c
	}
	return c
}

// run is the record of the run, which is made if need be.
func (c *container) run(id string) *run {
	if c.runs == nil {
		c.runs = map[string]*run{}
	}
	r := c.runs[id]
	if r == nil {
		r = &run{}
		c.runs[id] = r
	}
	return r
}

func (c *container) probe(kind string, p topic.Probe) {
	if c.probes == nil {
		c.probes = map[string]topic.Probe{}
	}
	c.probes[kind] = p
}

func (c *container) beginBackoff(restarts int) { c.backoff = &restarts }

// imagesFor are what the action is to create a container with.
func (s *state) imagesFor(a plan.Action) Images {
	c := s.containers[a.Container]
	if c == nil || c.image == nil {
		return Images{}
	}
	return c.image.Images
}

// facts are what the plan is to know of the containers.
func (cs containers) facts() map[string]plan.ContainerFacts {
	all := make(map[string]plan.ContainerFacts, len(cs))
	for name, c := range cs {
		f := plan.ContainerFacts{Image: c.image != nil, Busy: c.busy, Probes: c.probes}
		if c.backoff != nil {
			f.BackoffBase = *c.backoff
		}
		for id, r := range c.runs {
			if r.RunFacts == (plan.RunFacts{}) {
				continue
			}
			if f.Runs == nil {
				f.Runs = map[string]plan.RunFacts{}
			}
			f.Runs[id] = r.RunFacts
		}
		all[name] = f
	}
	return all
}

// backoffBases are the restart counts at which crash back-offs started over, by container name.
func (cs containers) backoffBases() map[string]int {
	bases := map[string]int{}
	for name, c := range cs {
		if c.backoff != nil {
			bases[name] = *c.backoff
		}
	}
	return bases
}

// seedBackoff begins the crash back-off of a container that isn't known yet with its newest run: earlier restarts, from
// before the daemon knew the pod or before a reboot, may be long ago.
func (cs containers) seedBackoff(obs topic.PodObservation) {
	for i := range obs.Containers {
		if c := cs.of(obs.Containers[i].Name); c.backoff == nil {
			c.beginBackoff(obs.Containers[i].RestartCount)
		}
	}
}

// busy are the names of the containers that are being started.
func (cs containers) busy() map[string]bool {
	busy := map[string]bool{}
	for name, c := range cs {
		if c.busy {
			busy[name] = true
		}
	}
	return busy
}

// messages are the termination messages, by container ID.
func (cs containers) messages() map[string]string {
	messages := map[string]string{}
	for _, c := range cs {
		for id, r := range c.runs {
			if r.message != nil {
				messages[id] = *r.message
			}
		}
	}
	return messages
}

// messagesDue is until when a status waits for termination messages; zero if it doesn't.
func (cs containers) messagesDue() time.Time {
	var due time.Time
	for _, c := range cs {
		for _, r := range c.runs {
			if end := r.reading.Add(awaitMessage); !r.reading.IsZero() && end.After(due) {
				due = end
			}
		}
	}
	return due
}

// forget drops the runs that the runtime doesn't have any more. One whose message is being read is kept until it is
// read.
func (cs containers) forget(obs topic.PodObservation) {
	there := map[string]bool{}
	for i := range obs.Containers {
		there[obs.Containers[i].ID] = true
	}
	for _, c := range cs {
		for id, r := range c.runs {
			if !there[id] && r.reading.IsZero() {
				delete(c.runs, id)
			}
		}
	}
}

// dropImages forgets images that the pod doesn't ask for any more.
func (cs containers) dropImages(pod *corev1.Pod) {
	for name, c := range cs {
		if c.image != nil && c.image.name != imageName(pod, name) {
			c.image = nil
		}
	}
}

// imageName is the image that the spec names for a container of any kind.
func imageName(pod *corev1.Pod, container string) string {
	if c := plan.Container(pod, container); c != nil {
		return c.Image
	}
	return ""
}
