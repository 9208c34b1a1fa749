package podsync

import (
	"testing"

	"kubelot.dev/bus/topic"
)

// The pod may be the API server: the corrected manifest can't wait for it.
func TestACorrectedManifestDoesNotWaitForTheAPIServer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromFile, pod("api", "broken"), pod("other", "u1"))
		b.wantRunning("api", "other")
		b.deliver(fromFile, pod("api", "corrected"))
		b.wantRunning("api")
		if _, known := get(b, topic.PodUpdate, "corrected"); !known {
			t.Error("the pod of the corrected manifest has no worker")
		}
		if _, known := get(b, topic.PodUpdate, "broken"); known {
			t.Error("the pod of the manifest before is still there")
		}
	})
}
