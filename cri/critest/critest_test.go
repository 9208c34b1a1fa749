package critest_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"kubelot.dev/cri"
	"kubelot.dev/cri/critest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const image = "docker.io/library/busybox:1.36"

func TestFake(t *testing.T) {
	fake := critest.Start(t)
	fake.AddImage(image, 1<<20)
	critest.Suite(t, critest.Target{Client: fake.Client(t, 0), Image: image, LogDir: t.TempDir()})
}

// The in-memory fake must work in a synctest bubble, where services are tested.
func TestFakeInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := critest.Start(t, critest.InMemory())
		client := fake.Client(t, 0)
		if _, err := client.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		fake.Down()
		if _, err := client.Version(t.Context()); !cri.IsUnavailable(err) {
			t.Errorf("a runtime that is down answered %v", err)
		}
	})
}
