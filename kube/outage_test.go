package kube

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// many runs as many watches of one client as a node with pods has.
func many(t *testing.T, c *collection, body func(t *testing.T, watches int)) {
	t.Helper()
	const watches = 100
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := testClient()
		var wg sync.WaitGroup
		for range watches {
			wg.Go(func() {
				for range stream[corev1.ConfigMap](ctx, client, c.source(""), "configmaps") {
					continue
				}
			})
		}
		time.Sleep(2 * time.Second) // a watch that ends within a second is a fault of its own
		synctest.Wait()
		body(t, watches)
		cancel()
		c.fail(nil)
		wg.Wait()
	})
}

func TestWatchesTakeTurnsDuringAnOutage(t *testing.T) {
	c := newCollection()
	many(t, c, func(t *testing.T, watches int) {
		c.fail(errDown)
		if n := c.askedIn(10*time.Minute, time.Minute); n < 190 || n > 310 {
			t.Errorf("%d requests in 10 minutes, want one each 2 to 3 s", n)
		}
		c.fail(nil)
		time.Sleep(turnDelayMax*3/2 + firstSpread)
		synctest.Wait()
		if n := c.watched(); n != watches {
			t.Errorf("%d of %d watches run soon after the outage", n, watches)
		}
	})
}

func TestAShortOutageIsOverAtOnce(t *testing.T) {
	c := newCollection()
	many(t, c, func(t *testing.T, watches int) {
		c.fail(errDown)
		time.Sleep(100 * time.Millisecond)
		c.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.watched(); n != watches {
			t.Errorf("%d of %d watches run a second after an outage of 100 ms", n, watches)
		}
	})
}

// A server may be restored to an earlier state meanwhile: a watch from the later one would be silent.
func TestAfterAnOutageItListsAgain(t *testing.T) {
	c := newCollection()
	c.set("kept", "1")
	streaming(t, c, func(t *testing.T, changes <-chan Change[corev1.ConfigMap], v *view) {
		v.read(t, changes)
		time.Sleep(2 * time.Second)
		c.fail(errDown)
		time.Sleep(time.Minute)
		c.remove("kept")
		c.fail(nil)
		time.Sleep(turnDelayMax*3/2 + firstSpread)
		v.read(t, changes)
		v.want(t, map[string]string{})
		if v.synced != 2 {
			t.Errorf("synced %d times, want after each list", v.synced)
		}
	})
}

// TestAServerThatRarelyAnswersIsSpared injects the worst case: each answer ends an outage, so that all watches go on,
// and most of them fail.
func TestAServerThatRarelyAnswersIsSpared(t *testing.T) {
	c := newCollection()
	many(t, c, func(t *testing.T, watches int) {
		c.refusesEach = 10
		c.fail(errDown)
		if n := c.askedIn(time.Minute, 5*time.Minute); n > 15*watches {
			t.Errorf("%d requests in a minute, want at most one each 4 s from each watch", n)
		}
	})
}

// client-go hides these ends of a watch: it tries ten times, a second apart, and gives an empty watch then.
func TestAWatchWithoutAnAnswerIsAnError(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	c := clientOf(t, server.URL)
	if w, err := c.nodes().Watch(t.Context(), metav1.ListOptions{}); err == nil || !unanswered(err) {
		t.Errorf("the watch is %v, %v, want an error", w, err)
	}
	_, err := c.nodes().list(t.Context(), metav1.ListOptions{}, new(corev1.NodeList))
	if err == nil || !unanswered(err) {
		t.Errorf("the list is %v, want an error", err)
	}
	if n := asked.Load(); n > 4 { // net/http repeats a request for which its connection was closed
		t.Errorf("the server was asked %d times, want once for each request", n)
	}
}

func TestWhatCountsAsNoAnswer(t *testing.T) {
	proxy := apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", corev1.Resource("nodes"), "n",
		"<html>no backend</html>", 0, true)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errDown, true},
		{errNoAnswer, true},
		{context.DeadlineExceeded, true},
		{proxy, true},
		{apierrors.NewServiceUnavailable("starting"), false},
		{apierrors.NewTooManyRequests("busy", 1), false},
		{errRefused, false},
		{fmt.Errorf("read the kubeconfig: %w", fs.ErrNotExist), false},
	} {
		if got := unanswered(c.err); got != c.want {
			t.Errorf("%v counts as no answer: %t, want %t", c.err, got, c.want)
		}
	}
}
