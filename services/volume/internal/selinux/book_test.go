package selinux

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	rwop = corev1.ReadWriteOncePod
	rwo  = corev1.ReadWriteOnce
	rox  = corev1.ReadOnlyMany
	rwx  = corev1.ReadWriteMany
)

// of is a volume of these access modes.
func of(modes ...corev1.PersistentVolumeAccessMode) Volume {
	return Volume{ID: "d^h", Name: "pv", Plugin: "csi/d", Modes: modes}
}

// podOf is a pod whose containers have the volume v and these levels, see container. A first "recursive" is its policy.
func podOf(uid string, levels ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	for _, level := range levels {
		if level == "recursive" {
			recursive := corev1.SELinuxChangePolicyRecursive
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxChangePolicy: &recursive}
			continue
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container(level))
	}
	return pod
}

// told are the metrics that aren't zero, each as name{labels}=value.
func (b *Book) told(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, m := range b.Metrics() {
		if err := registry.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetHelp(), "[ALPHA] ") {
			t.Errorf("the help of %s doesn't begin with its stability: %s", f.GetName(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			list = append(list, fmt.Sprintf("%s{%s}=%v", strings.TrimPrefix(f.GetName(), "volume_manager_selinux_"),
				strings.Join(labels, ","), m.GetGauge().GetValue()))
		}
	}
	return list
}

// The label of one pod's volume, by the gate and the access modes, and what the metrics say.
func TestOnePod(t *testing.T) {
	const label = "u:r:t:s0:c1"
	two := func(isError bool, mode string) []string {
		kind := map[bool]string{true: "errors", false: "warnings"}[isError]
		return []string{"pod_context_mismatch_" + kind + "_total{access_mode=" + mode + "}=1"}
	}
	admitted := func(mode string) []string {
		return []string{"volumes_admitted_total{access_mode=" + mode + ",volume_plugin=csi/d}=1"}
	}
	for _, c := range []struct {
		name      string
		everyMode bool
		v         Volume
		levels    []string
		want      string
		fails     string
		told      []string
	}{
		{name: "one pod's", v: of(rwop), levels: []string{"s0:c1"}, want: label, told: admitted("RWOP")},
		{
			name: "one pod's, with the gate", everyMode: true, v: of(rwop), levels: []string{"s0:c1"}, want: label,
			told: admitted("RWOP"),
		},
		{name: "one node's", v: of(rwo), levels: []string{"s0:c1"}, told: admitted("RWO")},
		{
			name: "one node's, with the gate", everyMode: true, v: of(rwo), levels: []string{"s0:c1"}, want: label,
			told: admitted("RWO"),
		},
		{name: "readers'", v: of(rox, rwo), levels: []string{"s0:c1"}, told: admitted("ROX")},
		{
			name: "all's, with the gate", everyMode: true, v: of(rwo, rwx), levels: []string{"s0:c1"}, want: label,
			told: admitted("RWX"),
		},
		{name: "perhaps one pod's", v: of(rwop, rwo), levels: []string{"s0:c1"}, told: admitted("RWO")},
		{name: "the pod's own", v: of(), levels: []string{"s0:c1"}, told: admitted("inline")},
		{
			name: "the pod's own, with the gate", everyMode: true, v: of(), levels: []string{"s0:c1"},
			told: admitted("inline"),
		},
		{name: "no label", v: of(rwop), levels: []string{"-"}},
		{name: "a label of its own", v: of(rwop), levels: []string{""}},
		{name: "files one by one", v: of(rwop), levels: []string{"recursive", "s0:c1"}},
		{name: "files one by one, two labels", v: of(rwop), levels: []string{"recursive", "s0:c1", "s0:c2"}},
		{name: "files one by one, with the gate", everyMode: true, v: of(rwx), levels: []string{"recursive", "s0:c1"}},
		{
			name: "two labels", v: of(rwop), levels: []string{"s0:c1", "s0:c2"},
			fails: "multiple SELinux labels found: u:r:t:s0:c1,u:r:t:s0:c2: ", told: two(true, "RWOP"),
		},
		{
			name: "a label, and one of its own", v: of(rwop), levels: []string{"s0:c1", ""},
			fails: "multiple SELinux labels found: u:r:t:s0:c1,: ", told: two(true, "RWOP"),
		},
		{name: "two labels, one node's", v: of(rwo), levels: []string{"s0:c1", "s0:c2"}, told: two(false, "RWO")},
		{
			name: "two labels, one node's, with the gate", everyMode: true, v: of(rwo), levels: []string{"s0:c1", "s0:c2"},
			fails: "multiple SELinux labels found", told: two(true, "RWO"),
		},
		{
			name: "two labels, the pod's own", everyMode: true, v: of(), levels: []string{"s0:c1", "s0:c2"},
			told: two(false, "inline"),
		},
		{
			name: "no such label", v: of(rwop), levels: []string{"wrong"}, fails: "no such level",
			told: []string{"container_errors_total{access_mode=RWOP}=1"},
		},
		{
			name: "no such label, all's", v: of(rwx), levels: []string{"wrong"},
			told: []string{"container_warnings_total{access_mode=RWX}=1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook(fake, c.everyMode)
			got, err := b.Label(podOf("u1", c.levels...), "v", c.v)
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q, %v; want %q", got, err, c.want+c.fails)
			}
			if told := b.told(t); !slices.Equal(told, c.told) {
				t.Errorf("the metrics are %q; want %q", told, c.told)
			}
		})
	}
}

// The second pod of a volume, by the gate and the access mode.
func TestTwoPods(t *testing.T) {
	one, other := []string{"s0:c1"}, []string{"s0:c2"}
	recursive, otherRecursive := []string{"recursive", "s0:c1"}, []string{"recursive", "s0:c2"}
	for _, c := range []struct {
		name          string
		everyMode     bool
		mode          corev1.PersistentVolumeAccessMode
		first, second []string
		want          string
		// counts is "errors" or "warnings" for a conflict; one that is an error has labels.
		counts, labels string
	}{
		{name: "the same", mode: rwop, first: one, second: one, want: "u:r:t:s0:c1"},
		{
			name: "another", mode: rwop, first: one, second: other, counts: "errors",
			labels: `"u:r:t:s0:c1" and "u:r:t:s0:c2"`,
		},
		{
			name: "one and none", mode: rwop, first: one, second: []string{"-"}, counts: "errors",
			labels: `"u:r:t:s0:c1" and ""`,
		},
		{name: "files one by one", mode: rwop, first: recursive, second: recursive},
		{
			name: "two policies", mode: rwop, first: recursive, second: one, counts: "errors",
			labels: `"" and "u:r:t:s0:c1"`,
		},
		{name: "the same, all's", mode: rwx, first: one, second: one},
		{name: "another, all's", mode: rwx, first: one, second: other, counts: "warnings"},
		{name: "two policies, all's", mode: rwx, first: one, second: recursive, counts: "warnings"},
		{name: "files one by one, all's", mode: rwx, first: recursive, second: otherRecursive},
		{name: "the same, with the gate", everyMode: true, mode: rwx, first: one, second: one, want: "u:r:t:s0:c1"},
		{
			name: "another, with the gate", everyMode: true, mode: rwx, first: one, second: other, counts: "errors",
			labels: `"u:r:t:s0:c1" and "u:r:t:s0:c2"`,
		},
		{
			name: "two policies, with the gate", everyMode: true, mode: rwx, first: one, second: recursive, counts: "errors",
			labels: `"u:r:t:s0:c1" and ""`,
		},
		{name: "files one by one, with the gate", everyMode: true, mode: rwx, first: recursive, second: otherRecursive},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook(fake, c.everyMode)
			if _, err := b.Label(podOf("u1", c.first...), "v", of(c.mode)); err != nil {
				t.Fatal(err)
			}
			got, err := b.Label(podOf("u2", c.second...), "v", of(c.mode))
			if got != c.want || (err != nil) != (c.labels != "") ||
				err != nil && !strings.HasPrefix(err.Error(), "conflicting SELinux labels of volume pv: "+c.labels+": ") {
				t.Errorf("%q, %v; want %q %s", got, err, c.want, c.labels)
			}
			want := ""
			if c.counts != "" {
				want = fmt.Sprintf("volume_context_mismatch_%s_total{access_mode=%s,volume_plugin=csi/d}=1", c.counts,
					modeOf(of(c.mode)))
			}
			told := slices.DeleteFunc(b.told(t), func(s string) bool { return strings.HasPrefix(s, "volumes_admitted") })
			if strings.Join(told, " ") != want {
				t.Errorf("the metrics are %q; want %q", told, want)
			}
		})
	}
}

// A pod that goes makes room for another label, asking again counts nothing, and a refused pod leaves nothing.
func TestPodsComeAndGo(t *testing.T) {
	b := NewBook(fake, false)
	wants := func(pod *corev1.Pod, v Volume, want string) {
		t.Helper()
		if got, err := b.Label(pod, "v", v); got != want || (err == nil) != (want != "") {
			t.Errorf("pod %s: %q, %v; want %q", pod.UID, got, err, want)
		}
	}
	first, second := podOf("u1", "s0:c1"), podOf("u2", "s0:c2")
	other := of(rwop)
	other.ID = "d^other"
	wants(first, of(rwop), "u:r:t:s0:c1")
	wants(first, of(rwop), "u:r:t:s0:c1")
	wants(second, of(rwop), "")
	wants(second, of(rwop), "")
	wants(second, other, "u:r:t:s0:c2")
	b.Leave("u1", "other")
	b.Leave("u2", "v")
	wants(second, of(rwop), "")
	b.Leave("u1", "v")
	wants(second, of(rwop), "u:r:t:s0:c2")
	// Its volume may become another.
	wants(second, other, "u:r:t:s0:c2")
	wants(first, of(rwop), "u:r:t:s0:c1")
	want := []string{
		"volume_context_mismatch_errors_total{access_mode=RWOP,volume_plugin=csi/d}=3",
		"volumes_admitted_total{access_mode=RWOP,volume_plugin=csi/d}=5",
	}
	if told := b.told(t); !slices.Equal(told, want) {
		t.Errorf("the metrics are %q; want %q", told, want)
	}
	b.Clear()
	if len(b.wishes)+len(b.shared) > 0 {
		t.Errorf("after all have gone it knows %v and %v", b.wishes, b.shared)
	}
}

func TestWithoutLabels(t *testing.T) {
	for name, b := range map[string]*Book{"no book": nil, "a node without SELinux": NewBook(nil, true)} {
		b.Leave("u1", "v")
		if got, err := b.Label(podOf("u1", "s0:c1", "s0:c2"), "v", of(rwop)); got != "" || err != nil || b.On() {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

var errLevel = errors.New("no such level")
