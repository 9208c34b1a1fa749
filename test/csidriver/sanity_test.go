package csidriver_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/testbed/tools"
)

// Without this, what a test says of the node agent could be a fault of the driver.
func TestSanity(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the driver mounts, which needs root")
	}
	box, err := tools.Find(t.Output())
	if err != nil {
		t.Fatal(err)
	}
	program, err := box.EnsureCSISanity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*csidriver.Config)
		want   string
	}{
		"all": {
			func(c *csidriver.Config) { c.Segment = [2]string{"example.com/zone", "a"} },
			"Ran 58 of 103 Specs",
		},
		"no stage": {
			func(c *csidriver.Config) { c.NoStage, c.NoAttach, c.NoExpand, c.NoStats = true, true, true, true },
			"Ran 33 of 103 Specs",
		},
	} {
		t.Run(name, func(t *testing.T) { sanity(t, program, c.change, c.want) })
	}
}

// sanity expects that these specs run, and no others: those of what a driver doesn't say that it can are skipped.
func sanity(t *testing.T, program string, change func(*csidriver.Config), want string) {
	dir := t.TempDir() // its removal fails where something is left mounted
	cfg := csidriver.Config{
		Name: "test.csi.kubelot.dev", NodeID: "node", State: dir, Socket: filepath.Join(dir, "csi.sock"),
	}
	change(&cfg)
	driver, err := csidriver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := driver.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := csidriver.Wait(waiting, cfg.Socket); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, program, "--csi.endpoint", "unix://"+cfg.Socket, "--csi.mountdir",
		filepath.Join(dir, "target"), "--csi.stagingdir", filepath.Join(dir, "staging"), "--ginkgo.no-color").
		CombinedOutput()
	if err != nil {
		t.Errorf("csi-sanity: %v\n%s", err, out)
	}
	ran := regexp.MustCompile(`Ran \d+ of \d+ Specs`).Find(out)
	if string(ran) != want {
		t.Errorf("csi-sanity: %q, want %q:\n%s", ran, want, out)
	}
}
