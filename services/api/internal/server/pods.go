package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/api/internal/state"
)

func (s *Service) getPods(w http.ResponseWriter, r *http.Request) { s.list(w, r, (*state.State).Pods) }

func (s *Service) getRunningPods(w http.ResponseWriter, r *http.Request) {
	s.list(w, r, (*state.State).Running)
}

func (s *Service) list(w http.ResponseWriter, r *http.Request, of func(*state.State) []corev1.Pod) {
	pods, err := askPods(r.Context(), s, of)
	if err != nil {
		fail(w, unanswered(err), err)
		return
	}
	s.answer(w, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
}

// summaryPatience is how long stats may take to answer.
const summaryPatience = 20 * time.Second

func (s *Service) getSummary(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("internal error: %w", err))
		return
	}
	request := topic.SummaryRequest{OnlyCPUAndMemory: slices.Equal(r.Form["only_cpu_and_memory"], []string{"true"})}
	ctx, cancel := context.WithTimeout(r.Context(), summaryPatience)
	defer cancel()
	summary, err := topic.StatsSummary.Do(ctx, s.env.Bus, request)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("get the usage from kubelot-stats: %w", err))
		return
	}
	s.answer(w, summary)
}

// found is the pod of a name, if one is named so, and whether uid names it too.
type found struct {
	pod       state.Pod
	named, ok bool
}

func find(ctx context.Context, s *Service, namespace, name, uid string) (found, error) {
	return askPods(ctx, s, func(known *state.State) (f found) {
		f.pod, f.named = known.Pod(namespace, name)
		f.ok = f.named && known.IsUID(f.pod, uid)
		return f
	})
}

// findPod finds the pod of the request, and answers the request where there is none.
func (s *Service) findPod(w http.ResponseWriter, r *http.Request) (state.Pod, bool) {
	a, err := find(r.Context(), s, r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"))
	switch {
	case err != nil:
		fail(w, unanswered(err), err)
	case !a.named:
		fail(w, http.StatusNotFound, errNoPod)
	case !a.ok:
		fail(w, http.StatusNotFound, errOtherPod)
	}
	return a.pod, err == nil && a.ok
}

// findRunning finds the running container of the request, and answers the request where there is none.
func (s *Service) findRunning(w http.ResponseWriter, r *http.Request) (pod state.Pod, id string, ok bool) {
	if pod, ok = s.findPod(w, r); !ok {
		return pod, "", false
	}
	name := r.PathValue("container")
	if id, ok = pod.RunningContainer(name); ok {
		return pod, id, true
	}
	err := fmt.Errorf("container not found (%q)", name)
	if bucket(r.URL.Path) == "attach" {
		err = fmt.Errorf("container %s not found in pod %s_%s", name, pod.Name, pod.Namespace)
	}
	fail(w, http.StatusInternalServerError, err)
	return pod, id, ok
}

// getRun runs a command, whose words are separated by spaces, and answers with its output.
func (s *Service) getRun(w http.ResponseWriter, r *http.Request) {
	_, id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	command := strings.Split(r.FormValue("cmd"), " ")
	result, err := s.runtime.ExecSync(r.Context(), id, command, 0)
	if err == nil && result.GetExitCode() != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), result.GetExitCode(),
			result.GetStderr())
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The kubelet says so, whatever the command wrote.
	_, _ = w.Write(append(result.GetStdout(), result.GetStderr()...))
}

// checkpoint has the runtime write a checkpoint of a container into the root directory.
func (s *Service) checkpoint(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.findPod(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	if pod.SpecOf(name) == nil {
		fail(w, http.StatusNotFound, fmt.Errorf("container %v does not exist", name))
		return
	}
	timeout, err := checkpointTimeout(r)
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	id, ok := pod.RunningContainer(name)
	file := fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, name, time.Now().Format(time.RFC3339))
	path := filepath.Join(s.env.Config.RootDir, "checkpoints", file)
	if err = fmt.Errorf("container %v not found", name); ok {
		// The runtime doesn't make the directory; a checkpoint holds all that the container has in memory.
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = s.runtime.CheckpointContainer(r.Context(), id, path, timeout)
		}
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, fmt.Errorf("checkpointing of %v/%v/%v failed (%w)", pod.Namespace,
			pod.Name, name, err))
		return
	}
	s.answer(w, map[string][]string{"items": {path}})
}

// checkpointTimeout is the last timeout parameter, in seconds; zero without one.
func checkpointTimeout(r *http.Request) (time.Duration, error) {
	values := r.URL.Query()["timeout"]
	if len(values) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	if err != nil || seconds < 0 || seconds > int64(maxCheckpoint/time.Second) {
		return 0, errTimeout
	}
	return time.Duration(seconds) * time.Second, nil
}

// maxCheckpoint keeps a timeout within what makes sense.
const maxCheckpoint = 24 * time.Hour
