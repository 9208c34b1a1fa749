package podsync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/source/manifestcheck"
)

// ask calls podsync as the command line does.
func ask[Req, Resp any](b *bed, call bus.Call[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	return call.Do(ctx, b.others, req)
}

func retryOf(name, uid, container string) topic.Retry {
	return topic.Retry{Ref: topic.Ref{Namespace: "default", Name: name, UID: uid}, Container: container}
}

func TestACrashLoopIsEndedFromTheCommandLine(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("web", "u1"))
		b.wantRunning("web")
		// Each life ends at once, until the back-off is long.
		for range 6 {
			for _, id := range b.ids() {
				b.fake.Exit(id, 1, "Error")
			}
			b.observe("u1")
			b.pass(3 * time.Minute)
		}
		for _, id := range b.ids() {
			b.fake.Exit(id, 1, "Error")
		}
		b.observe("u1")
		b.pass(2 * time.Second)
		b.wantRunning()
		reply, err := ask(b, topic.PodRetry, retryOf("web", "u1", "app"))
		if err != nil || len(reply.Ended) != 1 || reply.Ended[0].Reason != "CrashLoopBackOff" ||
			reply.Ended[0].Container != "app" || time.Until(reply.Ended[0].Until) < 30*time.Second {
			t.Fatalf("%+v, %v; want a crash back-off of more than half a minute", reply, err)
		}
		b.settle()
		b.wantRunning("web")
		if reply, err = ask(b, topic.PodRetry, retryOf("web", "u1", "")); err != nil || len(reply.Ended) != 0 {
			t.Errorf("%+v, %v; want nothing to end in a pod that runs", reply, err)
		}
	})
}

func TestNonsenseEndsNoBackOff(t *testing.T) {
	inBubble(t, func(b *bed) {
		stop := b.start(fromAPI)
		b.node(110)
		ended := pod("job", "u2")
		ended.Status.Phase = "Succeeded"
		b.deliver(fromAPI, pod("web", "u1"), ended)
		for text, c := range map[string]struct {
			req  topic.Retry
			kind error
		}{
			"no container log": {retryOf("web", "u1", "log"), bus.ErrInvalid},
			"no worker":        {retryOf("web", "u9", ""), bus.ErrNotFound},
			"has ended":        {retryOf("job", "u2", ""), bus.ErrRefused},
		} {
			if _, err := ask(b, topic.PodRetry, c.req); err == nil || !strings.Contains(err.Error(), text) ||
				!errors.Is(err, c.kind) {
				t.Errorf("error %v; want one with %q, %v", err, text, c.kind)
			}
		}
		stop()
		if _, err := ask(b, topic.PodRetry, retryOf("web", "u1", "")); !errors.Is(err, bus.ErrUnavailable) {
			t.Errorf("without podsync: %v; want it to be unavailable", err)
		}
	})
}

// observe has pleg say what the runtime has of the pod.
func (b *bed) observe(uid string) {
	b.t.Helper()
	obs, err := observe.Pod(b.t.Context(), b.client, uid)
	if err != nil {
		b.t.Fatal(err)
	}
	set(b, topic.PLEGEvent, uid, obs)
}

// ids are those of the containers that run.
func (b *bed) ids() []string {
	b.t.Helper()
	list, err := b.client.ListContainers(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		if c.GetState() == 1 {
			ids = append(ids, c.GetId())
		}
	}
	return ids
}

const manifestText = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" +
	"spec:\n  containers: [{name: app, image: a:1}]\n"

func TestManifestsAreCheckedAsTheSourceReadsThem(t *testing.T) {
	inBubble(t, func(b *bed) {
		dir := filepath.Join(b.dir, "manifests")
		b.configure = func(c *config.Config) { c.Kubelet.StaticPodPath = dir }
		b.start(fromFile)
		reply, err := ask(b, topic.ManifestCheck, topic.ManifestRequest{})
		if err != nil || reply.Directory != dir || reply.Pod != (topic.Ref{}) {
			t.Errorf("the directory: %+v, %v", reply, err)
		}
		reply, err = ask(b, topic.ManifestCheck, topic.ManifestRequest{File: "web.yaml", Data: []byte(manifestText)})
		if err != nil || reply.Pod.Name != "web-n1" || reply.Pod.Namespace != "default" || len(reply.Pod.UID) != 32 ||
			len(reply.Warnings) != 0 {
			t.Errorf("a manifest: %+v, %v", reply, err)
		}
		other, err := ask(b, topic.ManifestCheck, topic.ManifestRequest{
			File: "b.yaml", Data: []byte(manifestText + "  x: 1\n"),
		})
		if err != nil || other.Pod.UID == reply.Pod.UID || len(other.Warnings) != 1 {
			t.Errorf("another file with an unknown field: %+v, %v; want another UID and a warning", other, err)
		}
		for want, req := range map[string]topic.ManifestRequest{
			"is no name of a manifest":      {File: "../web.yaml", Data: []byte(manifestText)},
			`".web.yaml" is no name`:        {File: ".web.yaml", Data: []byte(manifestText)},
			`"" is no name`:                 {Data: []byte(manifestText)},
			"it is empty":                   {File: "web.yaml"},
			`kind is "Secret"`:              {File: "web.yaml", Data: []byte("apiVersion: v1\nkind: Secret\n")},
			"static pods may not reference": {File: "web.yaml", Data: []byte(manifestText + "  serviceAccountName: x\n")},
			"spec.containers[0].image: Required": {
				File: "web.yaml", Data: []byte(strings.Replace(manifestText, "a:1", `""`, 1)),
			},
		} {
			_, err := ask(b, topic.ManifestCheck, req)
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, bus.ErrInvalid) ||
				strings.Contains(err.Error(), dir) {
				t.Errorf("%+v: error %v; want an invalid request with %q, without the file's path", req.File, err, want)
			}
		}
	})
}

func TestWhereManifestsCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "set staticPodPath", file: "is a single file"} {
		_, err := manifestcheck.Checker{Path: path, NodeName: "n1"}.Check(t.Context(), topic.ManifestRequest{})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, bus.ErrRefused) {
			t.Errorf("path %q: error %v; want a refusal with %q", path, err, want)
		}
	}
}
