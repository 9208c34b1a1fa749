package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/words"
)

// Standing is how far a pod is.
type Standing struct {
	// Done is true once it is what was asked for, Failed if it never will be.
	Done, Failed bool
	// Text says what there is to see.
	Text string
}

// Ready is how far a pod is on its way to being ready, or to its success.
func Ready(w pods.State, ref topic.Ref) Standing {
	update, known := w.Updates[ref.UID]
	if !known || update.Pod == nil {
		if other := namesake(w, ref); other != "" {
			return Standing{Text: "waits for the end of " + other}
		}
		return Standing{Text: "waits for kubelot-podsync to see it"}
	}
	status := w.Status(ref.UID)
	one := w
	one.Updates = map[string]topic.Pod{ref.UID: update}
	row := pods.Build(one)[0]
	s := Standing{
		Text:   fmt.Sprintf("%s, %d of %s ready", row.Phase, row.Ready, words.Plural(row.Total, "container")),
		Failed: row.Failed,
	}
	if status.Phase == corev1.PodSucceeded {
		s.Done, s.Text = true, "has succeeded"
	}
	if update.Lifecycle == topic.Syncing && slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		s.Done, s.Text = true, "is ready"
	}
	return s
}

// namesake is the life before of a pod whose manifest was changed.
func namesake(w pods.State, ref topic.Ref) string {
	for uid, u := range w.Updates {
		if uid != ref.UID && u.Pod != nil && u.Pod.Namespace == ref.Namespace && u.Pod.Name == ref.Name {
			return "its earlier version, which is " + string(u.Lifecycle)
		}
	}
	return ""
}

// Gone is how far a pod is on its way to being gone.
func Gone(w pods.State, ref topic.Ref) Standing {
	update, known := w.Updates[ref.UID]
	if !known {
		return Standing{Done: true, Text: "is gone"}
	}
	if update.Lifecycle == topic.Syncing {
		return Standing{Text: "waits for kubelot-podsync to end it"}
	}
	return Standing{Text: "is " + string(update.Lifecycle)}
}

// lookEvery is the pause between two looks at the pods; a person waits for what they show.
const lookEvery = 250 * time.Millisecond

// Await looks at the pods until each is done or has failed, or until ctx ends. It tells each change of a pod's text,
// and returns where each pod stands. The error says that the bus couldn't be read at all.
func Await(ctx context.Context, conn *bus.Conn, refs []topic.Ref, judge func(pods.State, topic.Ref) Standing,
	tell func(topic.Ref, Standing),
) (map[string]Standing, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	last := map[string]Standing{}
	for {
		state, err := pods.Read(ctx, conn)
		if err == nil && settled(state, refs, last, judge, tell) {
			return last, nil
		}
		select {
		case <-ctx.Done():
			if len(last) == 0 && err != nil {
				return nil, err
			}
			return last, nil
		case <-look.C:
		}
	}
}

// settled judges all pods, and reports whether nothing is left to wait for.
func settled(state pods.State, refs []topic.Ref, last map[string]Standing,
	judge func(pods.State, topic.Ref) Standing, tell func(topic.Ref, Standing),
) bool {
	waiting := false
	for _, ref := range refs {
		before, now := last[ref.UID], judge(state, ref)
		if before.Done || before.Failed {
			continue
		}
		if now != before {
			tell(ref, now)
		}
		last[ref.UID] = now
		waiting = waiting || !now.Done && !now.Failed
	}
	return !waiting
}
