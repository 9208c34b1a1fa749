package credentialprovider

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/kube/flight"
)

const v1 = protocolV1

// answering is a program that answers with the text.
func answering(text string) string { return "cat >/dev/null; cat <<'END'\n" + text + "\nEND\n" }

// scripted is a program that is a shell script.
func scripted(t *testing.T, script string) *program {
	t.Helper()
	return &program{
		path: write(t, t.TempDir(), "provider", "#!/bin/sh\n"+script), apiVersion: v1, limit: time.Minute,
		ran: func(time.Duration, error) {},
	}
}

func TestProtocol(t *testing.T) {
	dir := t.TempDir()
	p := scripted(t, "cat >"+dir+"/stdin; echo \"$@ $FROM_CONFIG $FROM_DAEMON\" >"+dir+"/args; echo a word >&2\n"+
		`echo '{"kind":"CredentialProviderResponse","apiVersion":"`+v1+`","cacheKeyType":"Registry","cacheDuration":"1h30m",
		"auth":{"reg.example":{"username":"u","password":"p"}}}'`)
	p.args, p.env = []string{"get", "it"}, []string{"FROM_CONFIG=c", "FROM_DAEMON=replaced"}
	t.Setenv("FROM_DAEMON", "d")
	var runs []error
	p.ran = func(_ time.Duration, err error) { runs = append(runs, err) }
	got, words, err := p.run(t.Context(), request{
		Image: "reg.example/a", Token: "t", Annotations: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Auth["reg.example"] != (login{"u", "p"}) || got.CacheKeyType != "Registry" ||
		got.CacheDuration.Duration != 90*time.Minute || words != "a word" || len(runs) != 1 || runs[0] != nil {
		t.Errorf("got %+v, %q, %v", got, words, runs)
	}
	for name, want := range map[string]string{
		"args": "get it c replaced\n",
		"stdin": `{"kind":"CredentialProviderRequest","apiVersion":"` + v1 + `","image":"reg.example/a",` +
			`"serviceAccountToken":"t","serviceAccountAnnotations":{"k":"v"}}`,
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// What programs do wrong is one error each, without a word of what they have written. failed is whether the metric
// counts it: the program's end does, as in the kubelet, and its answer doesn't.
func TestBadPrograms(t *testing.T) {
	valid := func(more string) string {
		return `{"kind":"CredentialProviderResponse","apiVersion":"` + v1 + `"` + more + `}`
	}
	for name, c := range map[string]struct {
		script, want string
		failed       bool
	}{
		"dies":               {"echo secret; echo why >&2; exit 3", "exit status 3", true},
		"killed":             {"kill -9 $$", "signal: killed", true},
		"hangs":              {"sleep 1000", errTooSlow.Error(), true},
		"hangs, deaf":        {"trap '' TERM INT HUP; while :; do sleep 1000; done", errTooSlow.Error(), true},
		"hangs with a child": {"sleep 1000 & wait", errTooSlow.Error(), true},
		"leaves a child":     {answering(valid("")) + "sleep 1000 &", "has left a process behind", true},
		"huge":               {"while :; do echo secretsecretsecretsecretsecret; done", errTooLong.Error(), true},
		"huge, deaf": {
			"trap '' PIPE; while :; do echo secretsecretsecretsecret 2>/dev/null; done",
			errTooLong.Error(), true,
		},
		"silent":        {"", errNoJSON.Error(), false},
		"nonsense":      {"echo secret", errNoJSON.Error(), false},
		"not an object": {answering(`["secret"]`), errNoJSON.Error(), false},
		"two objects":   {answering(valid("") + valid("")), errNoJSON.Error(), false},
		"unknown field": {answering(valid(`,"secret":1`)), errNoJSON.Error(), false},
		"wrong type":    {answering(valid(`,"auth":"secret"`)), errNoJSON.Error(), false},
		"other version": {
			answering(strings.Replace(valid(""), "/v1", "/v1beta1", 1)),
			`has apiVersion "credentialprovider.kubelet.k8s.io/v1beta1"`, false,
		},
		"other kind": {
			answering(strings.Replace(valid(""), "Response", "Request", 1)),
			`kind "CredentialProviderRequest"`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := scripted(t, c.script)
			t.Parallel() // not before all are written: a file that is open for writing, in a fork too, can't be run
			if strings.HasPrefix(name, "hangs") {
				p.limit = 500 * time.Millisecond
			}
			var failed bool
			p.ran = func(_ time.Duration, err error) { failed = err != nil }
			_, words, err := p.run(t.Context(), request{Image: "reg.example/a"})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if failed != c.failed {
				t.Errorf("counted as failed: %v", failed)
			}
			if name == "dies" && words != "why" {
				t.Errorf("words %q", words)
			}
			if pids := processesOf(t, p.path); len(pids) > 0 {
				t.Errorf("processes are left: %v", pids)
			}
		})
	}
}

// processesOf are those that run the script, or that it has left.
func processesOf(t *testing.T, path string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, file := range dirs {
		if text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); err == nil &&
			strings.Contains(string(text), path) {
			pids = append(pids, file)
		}
	}
	return pids
}

func TestProgramIsGone(t *testing.T) {
	p := scripted(t, "")
	if err := os.Remove(p.path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.run(t.Context(), request{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// The group is killed as a whole, by the time limit and by who gives up.
func TestGroupIsKilled(t *testing.T) {
	for _, name := range []string{"limit", "given up"} {
		file := filepath.Join(t.TempDir(), "child")
		p := scripted(t, "sh -c 'echo $$ >"+file+"; exec sleep 1000' & wait")
		child := func() string { // empty until it runs
			text, _ := os.ReadFile(file) // it may not be there yet
			pid, whole := strings.CutSuffix(string(text), "\n")
			if !whole {
				return ""
			}
			return pid
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		if name == "limit" {
			p.limit = 300 * time.Millisecond
		} else {
			go func() {
				for child() == "" && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				cancel(flight.ErrNobodyWaits)
			}()
		}
		_, _, err := p.run(ctx, request{})
		for child() == "" && p.limit < time.Minute { // it was killed before it had a child
			p.limit *= 2
			_, _, err = p.run(ctx, request{})
		}
		cancel(nil)
		pid := child()
		if err == nil || pid == "" {
			t.Fatalf("%s: error %v, child %q", name, err, pid)
		}
		// A process that was killed may take a moment to end.
		for tries := 0; ; tries++ {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if tries == 200 {
				t.Fatalf("%s: the child is left: %s", name, stat)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// A program that says much on standard error is no problem, and its last words are kept.
func TestManyWords(t *testing.T) {
	p := scripted(t, "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done\n"+
		answering(`{"kind":"CredentialProviderResponse","apiVersion":"`+v1+`","cacheKeyType":"Image"}`))
	_, words, err := p.run(t.Context(), request{})
	if err != nil || len(words) > maxWords || !strings.HasSuffix(words, "line 19999") {
		t.Errorf("%v, %d bytes, %.20q", err, len(words), words)
	}
}
