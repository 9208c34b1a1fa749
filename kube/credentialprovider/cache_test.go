package credentialprovider

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const auth = `"auth":{"reg.ecr.example":{"username":"u","password":"p"}}`

func TestCacheKeys(t *testing.T) {
	for kind, want := range map[string][]int{"Image": {1, 1, 2, 3}, "Registry": {1, 1, 1, 2}, "Global": {1, 1, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, "", "", `"cacheKeyType":"`+kind+`",`+auth)
			for i, image := range []string{"a.ecr.example/x", "a.ecr.example/x", "a.ecr.example/y", "b.ecr.example/x"} {
				if got := b.get(image, podOf("1", "")); got != "reg.ecr.example=u:p" {
					t.Errorf("%s, %s: got %s", kind, image, got)
				}
				b.wantRuns(kind+", "+image, want[i])
			}
			if b.get("other.example/x", podOf("1", "")) != "" {
				t.Error("credentials for an image of another registry")
			}
			b.wantRuns("an image that doesn't match", want[3])
		})
	}
}

func TestCacheDurations(t *testing.T) {
	for answered, want := range map[string]struct {
		kept  time.Duration
		fresh int
	}{
		"":                         {12 * time.Hour, 1},
		`"cacheDuration":"20m",`:   {20 * time.Minute, 1},
		`"cacheDuration":"0s",`:    {0, 2},
		`"cacheDuration":"-5m",`:   {0, 2},
		`"cacheDuration":"9000h",`: {9000 * time.Hour, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, "", "", `"cacheKeyType":"Image",`+answered+auth)
			b.get("a.ecr.example/x", podOf("1", ""))
			time.Sleep(want.kept)
			b.get("a.ecr.example/x", podOf("1", ""))
			b.wantRuns(answered+" while it holds", want.fresh)
			time.Sleep(time.Second)
			b.get("a.ecr.example/x", podOf("1", ""))
			b.wantRuns(answered+" later", want.fresh+1)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", "", `"cacheKeyType":"Image",`+auth)
		b.list[0].hold = 0 // defaultCacheDuration: 0s
		b.get("a.ecr.example/x", podOf("1", ""))
		b.get("a.ecr.example/x", podOf("1", ""))
		b.wantRuns("no default", 2)
	})
}

// What holds no longer is dropped, also if nobody asks for it again.
func TestPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", "", `"cacheKeyType":"Image","cacheDuration":"1m",`+auth)
		for _, image := range []string{"x", "y", "z"} {
			b.get("a.ecr.example/"+image, podOf("1", ""))
		}
		c := &b.list[0].cache
		time.Sleep(10 * time.Minute)
		b.get("a.ecr.example/x", podOf("1", ""))
		if len(c.answers) != 3 {
			t.Errorf("%d answers after 10 minutes", len(c.answers))
		}
		time.Sleep(6 * time.Minute)
		b.get("a.ecr.example/x", podOf("1", ""))
		if len(c.answers) != 1 {
			t.Errorf("%d answers after 16 minutes", len(c.answers))
		}
	})
}

// Those who ask for one image at a time share a run; who gives up takes it from nobody. A failure isn't kept.
func TestSharedRun(t *testing.T) {
	b := newBed(t, "", "sleep 0.5", `"cacheKeyType":"Image",`+auth)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if got := b.get("a.ecr.example/x", podOf("1", "")); got != "reg.ecr.example=u:p" {
				t.Error(got)
			}
		})
	}
	all.Wait()
	b.wantRuns("five at a time", 1)

	b = newBed(t, "", "", `"cacheKeyType":"None",`+auth)
	for range 2 {
		const want = `credential provider ecr: its answer has cacheKeyType "None", want Image, Registry or Global`
		if got := b.get("a.ecr.example/x", podOf("1", "")); got != want {
			t.Error(got)
		}
	}
	b.wantRuns("failures", 2)
}

// Credentials come in the order of the configuration. A provider that fails is logged with the words of its program,
// and takes nothing from the others.
func TestOneOfThreeFails(t *testing.T) {
	dir, logs := t.TempDir(), &strings.Builder{}
	var config strings.Builder
	config.WriteString(one[:strings.Index(one, "- name")])
	for _, name := range []string{"slow", "broken", "fast"} {
		config.WriteString(strings.ReplaceAll(one[strings.Index(one, "- name"):], "name: ecr", "name: "+name))
		script := answering(`{"kind":"CredentialProviderResponse","apiVersion":"` + v1 + `","cacheKeyType":"Image",
			"auth":{"z":{"username":"` + name + `","password":"1"},"a":{"username":"` + name + `","password":"2"}}}`)
		switch name {
		case "slow":
			script = "sleep 0.3; " + script
		case "broken":
			script = "echo no metadata server >&2; exit 1"
		}
		write(t, dir, name, "#!/bin/sh\n"+script)
	}
	p, err := Open(Options{
		Config: write(t, dir, "config.yaml", config.String()), BinDir: dir, Log: slog.New(slog.NewTextHandler(logs, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Providers: p, t: t}
	if got := b.get("a.ecr.example/x", podOf("1", "")); got != "a=slow:2, z=slow:1, a=fast:2, z=fast:1, "+
		"credential provider broken: run "+dir+"/broken: exit status 1" {
		t.Error(got)
	}
	if got := logs.String(); strings.Count(got, "WARN") != 1 || !strings.Contains(got, "no metadata server") {
		t.Errorf("log: %s", got)
	}
}

// A run that nobody waits for any more is ended, and isn't logged.
func TestGivenUp(t *testing.T) {
	b := newBed(t, "", "sleep 1000", "")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, errs := b.Credentials(ctx, "a.ecr.example/x", podOf("1", "")); len(errs) != 1 ||
		!errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("errors %v", errs)
	}
	if b.logs.Len() > 0 {
		t.Errorf("log: %s", b.logs)
	}
}
