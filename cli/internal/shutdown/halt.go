package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/labels"
)

// runtime is the part of the CRI client that Halt needs.
type runtime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	StopContainer(ctx context.Context, id string, grace time.Duration) error
}

// Halt stops the pods' containers, each with its own grace period and no longer than most.
func Halt(ctx context.Context, r runtime, most time.Duration, out io.Writer) error {
	all, err := r.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return fmt.Errorf("list the running containers: %w", err)
	}
	var (
		mu   sync.Mutex
		errs []error
		work sync.WaitGroup
	)
	for _, c := range all {
		ref := labels.Pod(c.GetLabels())
		if ref.UID == "" {
			continue // it belongs to no pod
		}
		work.Go(func() {
			name := ref.Namespace + "/" + ref.Name + " " + c.GetLabels()[labels.ContainerName]
			began := time.Now()
			err := r.StopContainer(ctx, c.GetId(), grace(c, most))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("stop container %s: %w", name, err))
				return
			}
			fmt.Fprintf(out, "stopped %s in %s\n", name, time.Since(began).Round(time.Millisecond))
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// grace is the container's grace period in whole seconds, most at the longest. It is in an annotation of the container.
func grace(c *runtimeapi.Container, most time.Duration) time.Duration {
	// If the annotation isn't a number, the container has most.
	info, _ := labels.Parse(c.GetAnnotations())
	seconds := info.TerminationGracePeriod
	if seconds == nil || *seconds > int64(most/time.Second) {
		return most
	}
	return max(0, time.Duration(*seconds)*time.Second)
}

// Stopping reports whether systemd stops the system.
func Stopping(ctx context.Context) (bool, error) {
	// systemctl exits with an error for every state but "running".
	out, err := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	state := strings.TrimSpace(string(out))
	if state == "" {
		return false, fmt.Errorf("ask systemd whether the system stops (systemctl is-system-running): %w", err)
	}
	return state == "stopping", nil
}
