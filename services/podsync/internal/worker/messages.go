package worker

import (
	"time"

	"kubelot.dev/bus/topic"
)

// awaitMessage is how long a status that tells of a container's end waits for the termination message.
const awaitMessage = 2 * time.Second

// readMessages has the termination messages read that aren't known yet, each beside the worker: a disk that hangs
// mustn't keep the worker from its pod, nor others from the worker.
func (w *Worker) readMessages() {
	for i := range w.obs.Containers {
		c := w.obs.Containers[i]
		if c.State != topic.ContainerExited {
			continue
		}
		_, known := w.messages[c.ID]
		if _, underWay := w.reading[c.ID]; known || underWay {
			continue
		}
		w.reading[c.ID] = time.Now()
		go func() {
			message := w.hands.TerminationMessage(&c)
			w.send(func(w *Worker) {
				delete(w.reading, c.ID)
				w.messages[c.ID] = message
			})
		}()
	}
}

// messagesDue is until when a status waits for termination messages; zero if it doesn't.
func (w *Worker) messagesDue() time.Time {
	var due time.Time
	for _, since := range w.reading {
		if end := since.Add(awaitMessage); end.After(due) {
			due = end
		}
	}
	return due
}

// forget drops what is kept of containers and sandboxes that are no more.
func (w *Worker) forget() {
	containers, sandboxes := map[string]bool{}, map[string]bool{}
	for i := range w.obs.Containers {
		containers[w.obs.Containers[i].ID] = true
	}
	for i := range w.obs.Sandboxes {
		sandboxes[w.obs.Sandboxes[i].ID] = true
	}
	prune(w.messages, containers)
	prune(w.replaced, containers)
	prune(w.hooksRan, containers)
	prune(w.stopped, sandboxes)
}

func prune[V any](m map[string]V, keep map[string]bool) {
	for id := range m {
		if !keep[id] {
			delete(m, id)
		}
	}
}
