package worker

import (
	"time"

	"kubelot.dev/bus/topic"
)

// awaitMessage is how long a status with a container's end waits for the termination message.
const awaitMessage = 2 * time.Second

// readMessages has the termination messages read that aren't known yet, each in a goroutine of its own: a disk that
// hangs mustn't keep the worker from its pod, nor others from the worker. Wait waits for the readers.
func (w *Worker) readMessages() {
	for i := range w.state.view.obs.Containers {
		c := w.state.view.obs.Containers[i]
		if c.State != topic.ContainerExited {
			continue
		}
		r := w.state.containers.of(c.Name).run(c.ID)
		if r.message != nil || !r.reading.IsZero() {
			continue
		}
		r.reading = time.Now()
		w.background.Go(func() {
			message := w.executor.TerminationMessage(&c)
			w.send(func(*Worker) { r.message, r.reading = &message, time.Time{} })
		})
	}
}
