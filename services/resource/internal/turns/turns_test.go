package turns

import (
	"context"
	"testing"

	"kubelot.dev/services/resource/internal/devices"
)

func now(f func()) { f() }

// A turn that is given up lets nobody past the one that is under way.
func TestATurnThatIsGivenUp(t *testing.T) {
	all, gpu := Turns{}, []devices.Need{{Resource: "gpu"}, {Resource: "gpu"}}
	first, second, third := all.Take(gpu), all.Take(gpu), all.Take(gpu)
	other := all.Take([]devices.Need{{Resource: "nic"}})
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := second.Wait(given); err == nil {
		t.Error("the second turn doesn't wait for the first")
	}
	ended := make(chan struct{})
	second.End(func(f func()) { go func() { f(); close(ended) }() })
	if err := third.Wait(given); err == nil {
		t.Error("the third turn doesn't wait for the first")
	}
	if err := other.Wait(t.Context()); err != nil {
		t.Errorf("a turn at another plugin: %v", err)
	}
	first.End(now)
	<-ended
	if err := third.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	third.End(now)
	Turn{}.End(now)
}
