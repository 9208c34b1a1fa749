package stats

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/cri/cgroup/cgrouptest"
)

// BenchmarkHundredPods is an answer for 100 pods of two containers and a sandbox each, 400 cgroups, from files on disk.
func BenchmarkHundredPods(b *testing.B) {
	var trees strings.Builder
	v := view{node: "node"}
	for i := range 100 {
		uid := fmt.Sprintf("%08x%s", i, cgrouptest.UID[8:])
		trees.WriteString(strings.ReplaceAll(cgrouptest.V1, cgrouptest.UID, uid))
		v.pods = append(v.pods, podView{
			ref: topic.Ref{Namespace: "ns", Name: fmt.Sprint("pod-", i), UID: uid}, sandbox: cgrouptest.Box,
			containers: []containerView{
				{id: cgrouptest.App, name: "app", running: true},
				{id: cgrouptest.Other, name: "other", running: true},
			},
		})
	}
	tree, err := cgroup.New(cgrouptest.Unpack(b, trees.String()), "cgroupfs", "/")
	if err != nil {
		b.Fatal(err)
	}
	c := &cgroups{tree: tree, rates: newRates()}
	if u, err := c.usage(b.Context(), v, everything|rated); err != nil || len(u.pods) != len(v.pods) {
		b.Fatalf("%d pods, %v", len(u.pods), err)
	}
	b.Run("cpu and memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			u, _ := c.usage(b.Context(), v, rated)
			s := build(&figures{view: v, usage: u, now: time.Now()}, topic.SummaryRequest{OnlyCPUAndMemory: true})
			if err := writeResource(io.Discard, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cadvisor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			u, _ := c.usage(b.Context(), v, everything|rated)
			if err := writeCadvisor(io.Discard, &metricsInput{view: v, usage: u}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
