package podsync

import (
	"context"
	"errors"
	"fmt"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/podsync/internal/source/manifestcheck"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// operators answers what people ask from the command line.
type operators struct{ d *dispatcher }

// serve answers until the dispatcher ends.
func (o operators) serve() {
	serveOperator(o.d, topic.PodRetry, o.retry)
	files := manifestcheck.Checker{Path: o.d.cfg.Kubelet.StaticPodPath, NodeName: o.d.cfg.NodeName}
	serveOperator(o.d, topic.ManifestCheck, files.Check)
}

// serveOperator answers a call that pods can do without: if it can't be served, the log says so, and that is all.
func serveOperator[Req, Resp any](d *dispatcher, call bus.Call[Req, Resp],
	handle func(context.Context, Req) (Resp, error),
) {
	d.tasks.Go(func() {
		if err := call.Serve(d.tasks.ctx, d.recovery.bus, handle); err != nil && d.tasks.ctx.Err() == nil {
			d.log.Error("can't answer a call of the command line", "call", call.Name(), "error", err)
		}
	})
}

// retry ends the back-offs of a pod. The loop only finds the worker: it doesn't wait for its answer.
func (o operators) retry(ctx context.Context, req topic.Retry) (topic.RetryReply, error) {
	type answer struct {
		worker *worker.Worker
		err    error
	}
	a, gone := loop.Ask(ctx, o.d.tasks.Loop, func() (a answer) {
		a.worker, a.err = o.retried(req)
		return a
	})
	switch {
	case gone != nil:
		return topic.RetryReply{}, bus.WithKind(bus.ErrUnavailable, gone)
	case a.err != nil:
		return topic.RetryReply{}, a.err
	}
	ended, err := a.worker.Retry(ctx, req.Container)
	if err != nil {
		return topic.RetryReply{}, bus.WithKind(bus.ErrUnavailable, err)
	}
	o.d.log.Info("back-offs are ended from the command line", "pod", req.Name, "namespace", req.Namespace,
		"uid", req.UID, "container", req.Container, "ended", len(ended))
	return topic.RetryReply{Ended: ended}, nil
}

// retried is the worker of the pod that the request means.
func (o operators) retried(req topic.Retry) (*worker.Worker, error) {
	e := o.d.workers[req.UID]
	switch {
	case e == nil:
		return nil, bus.WithKind(bus.ErrNotFound, fmt.Errorf("pod %s/%s (UID %s) has no worker on this node: it is gone "+
			"or was never admitted", req.Namespace, req.Name, req.UID))
	case e.ending():
		return nil, bus.WithKind(bus.ErrRefused,
			errors.New("the pod is ending, or has ended: nothing of it is started again"))
	case req.Container != "" && plan.Container(e.pod, req.Container) == nil:
		return nil, bus.WithKind(bus.ErrInvalid, fmt.Errorf("the pod has no container %s", req.Container))
	}
	return e.Worker, nil
}
