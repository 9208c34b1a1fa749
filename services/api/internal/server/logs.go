package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/services/api/internal/logs"
	"kubelot.dev/services/api/internal/state"
)

// getContainerLogs writes a container's log. Errors that are found after the container was chosen come as text in an
// answer that is already OK: the kubelet does so, and kubectl shows it.
func (s *Service) getContainerLogs(w http.ResponseWriter, r *http.Request) {
	query, err := logs.ParseQuery(r.URL.Query(), time.Now())
	if err != nil {
		code := http.StatusBadRequest
		if errors.Is(err, logs.ErrInvalid) {
			code = http.StatusUnprocessableEntity
		}
		fail(w, code, err)
		return
	}
	namespace, podName, name := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, err := s.pod(r.Context(), namespace, podName)
	if err == nil && pod.SpecOf(name) == nil {
		err = fmt.Errorf("container %q not found in pod %q", name, podName)
	}
	if errors.Is(err, errUnread) {
		fail(w, unanswered(err), err)
		return
	}
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	id, err := pod.LogContainer(name, query.Previous)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	out := s.flusher(w, r)
	// A client that follows wants to know at once that it will be answered.
	if _, err := out.Write(nil); err != nil {
		return
	}
	if err := s.copyLog(r.Context(), pod, id, query, out); err != nil && r.Context().Err() == nil {
		_, _ = out.Write([]byte(err.Error()))
	}
}

// pod finds a pod by name.
func (s *Service) pod(ctx context.Context, namespace, name string) (state.Pod, error) {
	a, err := find(ctx, s, namespace, name, "")
	if err == nil && !a.ok {
		err = fmt.Errorf("pod %q does not exist", name)
	}
	return a.pod, err
}

func (s *Service) copyLog(ctx context.Context, pod state.Pod, fullID string, q logs.Query, out *flusher) error {
	id := state.BareID(fullID)
	path, err := s.logPath(ctx, pod, id)
	if err != nil {
		s.env.Log.Debug("can't find a log", "pod", pod.Name, "namespace", pod.Namespace, "id", id, "error", err)
		return fmt.Errorf("unable to retrieve container logs for %s", fullID)
	}
	if !q.Follow {
		return logs.Read(ctx, path, q.Options, out)
	}
	f := follower{service: s, namespace: pod.Namespace, name: pod.Name, id: id, asked: time.Now()}
	return logs.Follow(ctx, path, q.Options, f.ask, out)
}

// logPath is known from the runtime's view that pleg publishes; the runtime is asked where that is older than the
// container.
func (s *Service) logPath(ctx context.Context, pod state.Pod, id string) (string, error) {
	if c, ok := pod.Container(id); ok && c.LogPath != "" {
		return c.LogPath, nil
	}
	status, err := s.runtime.ContainerStatus(ctx, id)
	if err != nil {
		return "", err
	}
	if status.GetLogPath() == "" {
		return "", errors.New("the runtime has no log for it")
	}
	return status.GetLogPath(), nil
}

// askEvery is how often the runtime is asked whether a followed container runs, as well as what pleg says of it: the
// bus may be away.
const askEvery = 10 * time.Second

// follower knows whether the container of a followed log still runs.
type follower struct {
	service             *Service
	namespace, name, id string
	asked               time.Time
}

// ask reports whether the container still runs: it looks at what pleg says, and now and then asks the runtime.
func (f *follower) ask(ctx context.Context) bool {
	pod, err := f.service.pod(ctx, f.namespace, f.name)
	c, known := pod.Container(f.id)
	if err == nil && known && (c.State == topic.ContainerRunning || c.State == topic.ContainerCreated) &&
		time.Since(f.asked) < askEvery {
		return true
	}
	if known && c.State == topic.ContainerExited {
		return false
	}
	if time.Since(f.asked) < askEvery/10 {
		return true
	}
	f.asked = time.Now()
	status, err := f.service.runtime.ContainerStatus(ctx, f.id)
	switch {
	case cri.IsNotFound(err):
		return false
	case err != nil:
		// It may run while the runtime doesn't answer.
		return true
	}
	state := status.GetState()
	return state == runtimeapi.ContainerState_CONTAINER_RUNNING || state == runtimeapi.ContainerState_CONTAINER_CREATED
}

// flusher sends each part at once. A client that takes nothing for the idle time loses its connection.
type flusher struct {
	http.ResponseWriter
	control *http.ResponseController
	idle    time.Duration
	// shared is true where the connection has other requests too (HTTP/2).
	shared bool
}

func (s *Service) flusher(w http.ResponseWriter, r *http.Request) *flusher {
	return &flusher{
		w, http.NewResponseController(w), s.env.Config.Kubelet.StreamingConnectionIdleTimeout.Duration, r.ProtoMajor > 1,
	}
}

func (f *flusher) Write(p []byte) (int, error) {
	if f.idle > 0 {
		// Where a deadline isn't possible, the client's own end is all there is.
		_ = f.control.SetWriteDeadline(time.Now().Add(f.idle))
	}
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	if err == nil && f.shared {
		// HTTP/2 ends a request at its deadline, even if the log is only silent.
		_ = f.control.SetWriteDeadline(time.Time{})
	}
	return n, err
}
