package executor

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/hooks"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// execer runs hooks in the runtime.
type execer struct{ *cri.Client }

func (e execer) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration,
) (stdout, stderr []byte, exitCode int32, err error) {
	answer, err := e.Client.ExecSync(ctx, id, command, timeout)
	return answer.GetStdout(), answer.GetStderr(), answer.GetExitCode(), err
}

// The runtime is told which span a call belongs to, and the bus has the same span: that of the hook within the step.
func TestTheRuntimeIsToldTheSpan(t *testing.T) {
	for _, sampling := range []topic.Sampling{0, 1_000_000} {
		t.Run(fmt.Sprint(sampling), func(t *testing.T) {
			fake := critest.Start(t)
			fake.AddImage("a", 1)
			headers := map[string][]string{}
			for _, call := range []string{"CreateContainer", "StartContainer", "ExecSync"} {
				fake.On(call, func(ctx context.Context, _ any) error {
					md, _ := metadata.FromIncomingContext(ctx)
					headers[call] = md.Get("traceparent")
					return nil
				})
			}
			client := fake.Client(t, 0)
			b := bustest.New()
			conn, reader := b.Conn("podsync"), b.Conn("cli")
			defer conn.Close()
			defer reader.Close()
			steps := topic.PodStep.Subscribe(t.Context(), reader, bus.From{})
			pod := hooked()
			pod.UID = "4f7c1a52-0c5e-4a6e-9d0e-2f1f5b1c7a11"
			e, _ := newExecutor(t, &busyRuntime{}, func(d *Deps) {
				d.Runtime.Containers, d.Hooks = client, hooks.New(execer{client})
				d.Reports.Events = events.New(conn, &recorded{}, sampling, "", slog.New(slog.DiscardHandler))
			})
			obs := sandboxed()
			var err error
			obs.Sandboxes[0].ID, err = client.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
			}, "")
			if err != nil {
				t.Fatal(err)
			}
			e.Do(t.Context(), worker.Snapshot{
				Pod: pod, Obs: obs, Images: worker.Images{Image: image.Image{Ref: "a"}},
			}, plan.Action{Kind: plan.StartContainer, Container: "app", SandboxID: obs.Sandboxes[0].ID})

			hook, start := (<-steps).Value, (<-steps).Value
			if hook.Name != stepPostStart || start.Name != string(plan.StartContainer) || start.Error != "" {
				t.Fatalf("steps %+v, %+v", hook, start)
			}
			if sampling == 0 {
				for call, header := range headers {
					if header != nil {
						t.Errorf("nothing is traced, and %s came with traceparent %q", call, header)
					}
				}
				if hook.Span+start.Span != "" {
					t.Errorf("nothing is traced, and the bus was told %q and %q", hook.Span, start.Span)
				}
				return
			}
			if hook.Parent != start.Span || start.Parent != "" || len(start.Span) != 16 || hook.Span == start.Span {
				t.Errorf("the hook's span %s is below %q, the step's %s below %q", hook.Span, hook.Parent, start.Span, start.Parent)
			}
			for call, span := range map[string]string{
				"CreateContainer": start.Span, "StartContainer": start.Span, "ExecSync": hook.Span,
			} {
				want := "00-4f7c1a520c5e4a6e9d0e2f1f5b1c7a11-" + span + "-01"
				if got := headers[call]; len(got) != 1 || got[0] != want {
					t.Errorf("%s came with traceparent %q, want %s", call, got, want)
				}
			}
		})
	}
}
