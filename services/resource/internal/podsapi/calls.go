package podsapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/daemon/loop"
)

var errIncomplete = status.Error(codes.Unavailable, "the node's pods aren't known yet: try again")

// calls are the calls of v1alpha1.
type calls struct {
	podsv1alpha1.UnimplementedPodsServer
	server *Server
}

// ask has the owner of the book answer a question, as soon as the book is complete.
func ask[T any](ctx context.Context, s *Server, question func() (T, error)) (T, error) {
	var refused error
	answer, err := loop.Ask(ctx, s.loop, func() (answer T) {
		if !s.book.complete() {
			refused = errIncomplete
			return answer
		}
		answer, refused = question()
		return answer
	})
	if err != nil {
		return answer, status.FromContextError(ctx.Err()).Err()
	}
	return answer, refused
}

// ListPods has all pods, by UID.
func (c *calls) ListPods(ctx context.Context, _ *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	pods, err := ask(ctx, c.server, func() ([][]byte, error) { return c.server.book.list(), nil })
	if err != nil {
		return nil, err
	}
	return &podsv1alpha1.ListPodsResponse{Pods: pods}, nil
}

// GetPod has the pod of a UID.
func (c *calls) GetPod(ctx context.Context, r *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	pod, err := ask(ctx, c.server, func() ([]byte, error) { return c.server.book.pod(r.GetPodUID()), nil })
	switch {
	case err != nil:
		return nil, err
	case pod == nil:
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.GetPodUID())
	}
	return &podsv1alpha1.GetPodResponse{Pod: pod}, nil
}

// WatchPods has all pods, and then what changes of them.
func (c *calls) WatchPods(_ *podsv1alpha1.WatchPodsRequest,
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent],
) error {
	ctx, s := stream.Context(), c.server
	w, err := ask(ctx, s, func() (*watcher, error) { return s.watchers.add(s.book.list()) })
	if err != nil {
		return err
	}
	// The owner runs longer than any call.
	defer s.loop.Do(context.WithoutCancel(ctx), func() { s.watchers.remove(w) })
	for i, pod := range w.initial {
		if w.ended.Load() {
			return w.why
		}
		if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED, Pod: pod}); err != nil {
			return err
		}
		w.initial[i] = nil // the client has it, and it may be replaced soon
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case e, ok := <-w.events:
			e, err := w.take(e, ok)
			if err != nil {
				return err
			}
			if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: e.kind, Pod: e.pod}); err != nil {
				return err
			}
		}
	}
}
