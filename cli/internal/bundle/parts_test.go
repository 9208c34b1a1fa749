package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/tap"
)

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// example is a node whose files are below a directory.
func example(t *testing.T) Node {
	t.Helper()
	dir := t.TempDir()
	n := Node{
		Version: "v1", Since: time.Hour, RunDir: filepath.Join(dir, "run"), Disks: []string{dir},
		Proc: filepath.Join(dir, "proc"), Cgroups: filepath.Join(dir, "cgroup"), Etc: filepath.Join(dir, "etc"),
		NoBus:   errors.New("no bus"),
		Crew:    []settings.Daemon{{Name: "podsync", PID: 7}, {Name: "bus", PID: 5}, {Name: "pleg", PID: 7}},
		Doctor:  says("", "BAD  x").Write,
		Runtime: says("", "{}").Write,
		Journal: func(_ context.Context, out io.Writer, args ...string) error {
			_, err := io.WriteString(out, strings.Join(args, " "))
			return err
		},
	}
	for _, pid := range []string{"5", "7"} {
		for _, file := range []string{"status", "cgroup", "limits"} {
			write(t, file+" of "+pid+"\n", n.Proc, pid, file)
		}
	}
	for _, file := range kernelFiles {
		write(t, file[1], n.Proc, file[1])
	}
	write(t, "ID=x\nPRETTY_NAME=\"Test OS\"\n", n.Etc, "os-release")
	write(t, "100\n", n.Cgroups, "kubepods.slice", "a", "memory.current")
	write(t, "low 0\nhigh 1\n", n.Cgroups, "kubepods.slice", "a", "memory.events")
	write(t, "200\n", n.Cgroups, "user.slice", "memory.current")
	return n
}

// content is what a part writes.
func content(t *testing.T, n Node, name string) (string, error) {
	t.Helper()
	parts := Parts(n)
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no part %s", name)
	}
	var out bytes.Buffer
	err := parts[i].Write(t.Context(), &out)
	return out.String(), err
}

func TestParts(t *testing.T) {
	n := example(t)
	for name, want := range map[string]string{
		"doctor.txt":       "BAD  x",
		"config.json":      `"settings"`,
		"processes.txt":    "# bus\nstatus of 5\ncgroup of 5\nlimits of 5\n# podsync, pleg\nstatus of 7\n",
		"mounts.txt":       "1/mountinfo",
		"pressure/cpu.txt": "pressure/cpu",
		"cgroups.txt":      "/kubepods.slice/a memory.current=100 memory.events=low,0,high,1\n",
		"disks.json":       `"Capacity": `,
		"logs/kubelot.log": "--no-pager --output=short-iso-precise --since=-3600s --lines=20000 --unit=kubelot-*",
		"logs/kernel.log":  "--dmesg",
	} {
		n.Config = settings.Check([]string{"--hostname-override=n"})
		got, err := content(t, n, name)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, has %.300q, want %q", name, err, got, want)
		}
	}
	if got, _ := content(t, n, "cgroups.txt"); strings.Contains(got, "user.slice") {
		t.Errorf("cgroups of others are in the table:\n%s", got)
	}
}

// What can't be had is an error that says so, and what is known nevertheless is kept.
func TestPartsThatFail(t *testing.T) {
	n := example(t)
	for _, name := range []string{"health.json", "pods.json", "bus/history.jsonl", "versions.json"} {
		got, err := content(t, n, name)
		if err == nil || err.Error() != "no bus" {
			t.Errorf("%s without a bus: %v", name, err)
		}
		if kept := strings.Contains(got, `"os": "Test OS"`); kept != (name == "versions.json") {
			t.Errorf("%s without a bus has %q", name, got)
		}
	}
	if _, err := content(t, n, "metrics"); err == nil || !strings.Contains(err.Error(), "no daemon has a socket") {
		t.Errorf("metrics without daemons: %v", err)
	}
	n.Disks = append(n.Disks, "/does/not/exist")
	if got, err := content(t, n, "disks.json"); err == nil || !strings.Contains(got, "Capacity") {
		t.Errorf("a directory that isn't there: %v, %q", err, got)
	}
	n.Proc, n.Cgroups, n.Crew = t.TempDir(), t.TempDir(), nil
	for name, want := range map[string]string{
		"cgroups.txt": "no cgroup below", "processes.txt": "no daemon runs", "mounts.txt": "no such file",
	} {
		if _, err := content(t, n, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

func TestJournalWithoutSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("systemd runs here")
	}
	if err := Journal(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "there is no systemd here") {
		t.Errorf("error %v", err)
	}
}

func TestMetrics(t *testing.T) {
	n := example(t)
	n.RunDir = filepath.Join("/tmp", filepath.Base(t.TempDir())+"-bundle") // a socket's path must be short
	dir := filepath.Join(n.RunDir, "metrics")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(n.RunDir)
	for name, code := range map[string]int{"podsync": 200, "pleg": 500} {
		listener, err := net.Listen("unix", filepath.Join(dir, name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "up 1 "+r.URL.Path)
		})}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		defer func() {
			_ = server.Close()
			<-ended
		}()
	}
	if got, err := content(t, n, "metrics/podsync.prom"); err != nil || got != "up 1 /metrics" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := content(t, n, "metrics/pleg.prom"); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("a daemon that answers with an error: %v", err)
	}
}

// What is in the archive of the bus can be replayed and holds no secret.
func TestBusParts(t *testing.T) {
	n := example(t)
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "A", Value: "s3cr3t"}}}}
		err := topic.PodUpdate.Writer(podsync).Set("u", topic.Pod{Pod: pod, Lifecycle: topic.Syncing, Source: "api"})
		if err == nil {
			err = topic.PodSources.Writer(podsync).Set("", topic.Sources{Ready: true})
		}
		if err == nil {
			health := topic.DaemonHealth{State: topic.Healthy, Version: "v9", Beat: time.Now()}
			err = topic.Health.Writer(podsync).Set("podsync", health)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.Bus = cli
		for name, want := range map[string]string{
			"versions.json": `"podsync": "v9"`, "health.json": `"state": "healthy"`, "pods.json": `"name": "web"`,
			"bus/history.jsonl": `"subject":"pod.update.u"`,
		} {
			got, err := content(t, n, name)
			if err != nil || !strings.Contains(got, want) || strings.Contains(got, "s3cr3t") {
				t.Errorf("%s: %v, has %s", name, err, got)
			}
			if name != "bus/history.jsonl" {
				if !json.Valid([]byte(got)) {
					t.Errorf("%s is no JSON: %s", name, got)
				}
				continue
			}
			var out bytes.Buffer
			recording, err := tap.OpenRecording(strings.NewReader(got))
			if err == nil {
				err = tap.Replay(t.Context(), recording, tap.ReplayOptions{}, &out)
			}
			if err != nil || !strings.Contains(out.String(), "default/web  syncing, from api") {
				t.Errorf("replay: %v, %s", err, out.String())
			}
		}
	})
}
