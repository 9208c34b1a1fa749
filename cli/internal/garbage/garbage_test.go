package garbage

import (
	"strings"
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

var plan = topic.GCPlanReply{
	Waiting: "pod sources have not delivered: [api]",
	Decisions: []topic.Decision{
		{Action: topic.ActionKeep, Object: "registry.example/app:1", Reason: "in use by pod default/web"},
		{Action: topic.ActionRemoveImage, Object: "registry.example/old:1", FreedBytes: 3 << 20, Reason: "unused"},
		{Action: topic.ActionRemoveContainer, Object: strings.Repeat("1a", 32), Pod: &topic.Ref{
			Namespace: "default",
			Name:      "web",
		}, Reason: "more than 1 dead"},
		{
			Action: topic.ActionEvict, Object: "default/hog", Pod: &topic.Ref{Namespace: "default", Name: "hog"},
			Reason: "memory",
		},
	},
}

func TestTable(t *testing.T) {
	const waiting = "Nothing is removed now: pod sources have not delivered: [api].\n"
	const gone = `ACTION            OBJECT                  POD          SIZE   WHY
evict pod         default/hog             default/hog  -      memory
remove container  1a1a1a1a1a1a1           default/web  -      more than 1 dead
remove image      registry.example/old:1  -            3.0Mi  unused
`
	if got := Table(plan, false, paint.Painter{}); got != waiting+gone {
		t.Errorf("table\n%s\nwant\n%s", got, waiting+gone)
	}
	if got := Table(plan, true, paint.Painter{}); !strings.Contains(got, "\nkeep              registry.example/app:1") {
		t.Errorf("table of all\n%s", got)
	}
	hostile := topic.GCPlanReply{Waiting: "\x1b[2J", Decisions: []topic.Decision{{
		Action: topic.ActionRemoveImage, Object: "a\x1b[2Jb", Reason: "\x07", Pod: &topic.Ref{Name: "\x1b]0;t"},
	}}}
	if got := Table(hostile, true, paint.Painter{}); strings.ContainsAny(got, "\x1b\x07") {
		t.Errorf("what others have written moves the cursor: %q", got)
	}
	if got := Table(topic.GCPlanReply{Decisions: plan.Decisions[:1]}, false, paint.Painter{}); !strings.HasPrefix(got,
		"There is nothing to remove") {
		t.Errorf("empty table: %s", got)
	}
	if got := Table(plan, true, paint.Painter{On: true}); !strings.Contains(got, "\x1b[31mevict pod") {
		t.Errorf("colours: %q", got)
	}
}
