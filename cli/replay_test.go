package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const recorded = `{"kubelot":"recording","version":1,"created":"2026-11-20T12:00:00Z","from":"2026-11-20T12:00:00Z"}
{"time":"2026-11-20T12:00:00Z","subject":"pod.sources","daemon":"podsync","data":{"ready":true}}
{"time":"2026-11-20T12:10:00Z","subject":"node.pressure","daemon":"gc","data":{"memory":true}}
`

func TestReplay(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good"), filepath.Join(t.TempDir(), "bad")
	for path, text := range map[string]string{good: recorded, bad: recorded + "{"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args           []string
		code, lines    int
		stdout, stderr string
	}{
		"all":      {[]string{good}, 0, 2, "all sources read", ""},
		"at":       {[]string{good, "--at=5m"}, 0, 1, "memory pressure", ""},
		"at time":  {[]string{good, "--at=2026-11-20T12:10:01Z"}, 0, 0, "", ""},
		"error":    {[]string{good, "--error", "-o=json"}, 0, 1, `"topic":"node.pressure"`, ""},
		"cut off":  {[]string{bad}, 1, 2, "", bad + ": line 4 of the recording is no message"},
		"no file":  {[]string{good + "x"}, 1, 0, "", "no such file"},
		"speed":    {[]string{good, "--speed=-1"}, 1, 0, "", "--speed -1"},
		"bad at":   {[]string{good, "--at=noon"}, 1, 0, "", `--at "noon"`},
		"topic":    {[]string{good, "--topic=x"}, 1, 0, "", "no topic begins with x"},
		"label":    {[]string{good, "--label=a=("}, 1, 0, "", "want a selector"},
		"slower":   {[]string{good, "--slower-than=-1s"}, 1, 0, "", "want a positive duration"},
		"output":   {[]string{good, "-o=xml"}, 1, 0, "", "want text, wide, short or json"},
		"argument": {nil, 1, 0, "", "accepts 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"kubelot", "replay"}, c.args...)...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) ||
				strings.Count(stdout, "\n") != c.lines {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}

func TestMoment(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "5m": 5 * time.Minute, "0s": 0} {
		if d, at, err := moment(text); d != want || !at.IsZero() || err != nil {
			t.Errorf("%q: %s, %s, %v", text, d, at, err)
		}
	}
	if _, _, err := moment("-5m"); err == nil {
		t.Error("before the begin there is nothing")
	}
}

// standIn is an executable that stands for kubelot-all: it writes its arguments, and ends with an exit code.
func standIn(t *testing.T, code string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelot-all")
	script := "#!/bin/sh\necho \"$@\"\necho trouble >&2\nexit " + code + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	return path
}

// The check is done by kubelot-all, and its exit code is kubelot's.
func TestReplayCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(file, []byte(recorded), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"same":      {[]string{file, "--with=" + standIn(t, "0")}, 0, "check --output=text " + file, "trouble"},
		"json":      {[]string{file, "-o=json", "--with=" + standIn(t, "0")}, 0, "--output=json", ""},
		"different": {[]string{file, "--with=" + standIn(t, "3")}, 3, "", "decides otherwise than was recorded"},
		"failed":    {[]string{file, "--with=" + standIn(t, "1")}, 1, "", "the check failed"},
		"output":    {[]string{file, "-o=wide"}, 1, "", "--check: want -o text or json"},
		"filter":    {[]string{file, "--pod=web"}, 1, "", "--check looks at the whole recording"},
		"nowhere":   {[]string{file, "--with=" + file + "x"}, 1, "", "no such file"},
		"none here": {[]string{file}, 1, "", "name one with --with"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"kubelot", "replay", "--check"}, c.args...)...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}

// ofPod is a recording of a pod that has just come.
const ofPod = `{"kubelot":"recording","version":1,"created":"2026-11-20T12:00:00Z","from":"2026-11-20T12:00:00Z"}
{"time":"2026-11-20T12:00:00Z","subject":"pod.sources","daemon":"podsync","data":{"ready":true,"pods":["u"]}}
{"time":"2026-11-20T12:00:02Z","subject":"pod.update.u","daemon":"podsync","data":{"source":"api",` +
	`"lifecycle":"syncing","firstSeen":"2026-11-20T12:00:01Z","pod":{"metadata":{"name":"web","namespace":"shop",` +
	`"uid":"u"},"spec":{"containers":[{"name":"app","image":"x"}]}}}}` + "\n"

func TestWhyReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(file, []byte(ofPod), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"pod":     {[]string{"web"}, 0, "shop/web", ""},
		"json":    {[]string{"web", "-o=json"}, 0, `"namespace": "shop"`, ""},
		"node":    {[]string{"node"}, 0, "node", ""},
		"no pod":  {[]string{"other"}, 1, "", "other"},
		"before":  {[]string{"web", "--at=1s"}, 1, "", "web"},
		"too old": {[]string{"web", "--at=1h"}, 1, "", "the recording begins at 2026-11-20T12:00:00Z"},
		"no file": {[]string{"web", "--replay=" + file + "x"}, 1, "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := call(t, append([]string{"kubelot", "why", "--replay=" + file}, c.args...)...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}
