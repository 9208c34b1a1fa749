package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/scenariotest"
)

// epoch is the time 0s of scenarios.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata. "go test -rewrite" writes the results again; read the difference before you keep it.
//
//	pick capacity=N available=N [high=N] [low=N] [min=D] [max=D] [squeeze] [begun]   lines "ID SIZE seen=T [used=T] [pinned] [inuse]"; now is 1h
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) { datadriven.RunTest(t, path, pick) })
}

func pick(t *testing.T, d *datadriven.TestData) string {
	in := Input{
		Policy: Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}, Now: epoch.Add(time.Hour),
		Records: map[string]Record{}, InUse: map[string]string{},
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "squeeze":
			in.Squeeze = true
		case "begun":
			in.Begun = true
		case "min":
			in.Policy.MinAge = scenariotest.Duration(t, a.Vals[0])
		case "max":
			in.Policy.MaxAge = scenariotest.Duration(t, a.Vals[0])
		default:
			var n int64
			if _, err := fmt.Sscan(a.Vals[0], &n); err != nil {
				t.Fatal(err)
			}
			switch a.Key {
			case "capacity":
				in.FS.Capacity = n
			case "available":
				in.FS.Available = n
			case "high":
				in.Policy.High = int(n)
			case "low":
				in.Policy.Low = int(n)
			}
		}
	}
	for line := range strings.Lines(d.Input) {
		w := strings.Fields(line)
		i := &runtimeapi.Image{Id: w[0]}
		if _, err := fmt.Sscan(w[1], &i.Size); err != nil {
			t.Fatal(err)
		}
		var r Record
		for _, word := range w[2:] {
			switch name, value, _ := strings.Cut(word, "="); name {
			case "seen":
				r.FirstSeen = epoch.Add(scenariotest.Duration(t, value))
			case "used":
				r.LastUsed = epoch.Add(scenariotest.Duration(t, value))
			case "pinned":
				i.Pinned = true
			case "inuse":
				in.InUse[w[0]] = "pod default/web"
			}
		}
		in.Records[w[0]] = r
		in.Images = append(in.Images, i)
	}
	var out strings.Builder
	for _, c := range Pick(in) {
		fmt.Fprintf(&out, "%s %s: %s\n", c.Action, c.Object, c.Reason)
	}
	return out.String()
}

// Containers use images by ID, reference or digest; pods by the names in their specs, however short.
func TestInUse(t *testing.T) {
	const id = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	const digest = "docker.io/library/app@sha256:2222222222222222222222222222222222222222222222222222222222222222"
	images := []*runtimeapi.Image{
		{Id: id, RepoTags: []string{"docker.io/library/busybox:1.36"}},
		{Id: "b", RepoTags: []string{"docker.io/library/latest:latest"}},
		{Id: "c", RepoTags: []string{"registry.example/team/app:2"}, RepoDigests: []string{digest}},
		{Id: "d", RepoTags: []string{"registry.example/volume:1"}},
		{Id: "e", RepoTags: []string{"registry.example/init:1"}},
		{Id: "f", Spec: &runtimeapi.ImageSpec{RuntimeHandler: "kata"}},
		{Id: "g", RepoTags: []string{"registry.example/unused:1"}},
		{Id: "h", RepoTags: []string{"registry.k8s.io/pause:3.6"}},
	}
	containers := []*runtimeapi.Container{
		{ImageId: id},
		{ImageRef: digest},
		{ImageId: "f", Labels: map[string]string{labels.PodName: "p", labels.PodNamespace: "n", labels.ContainerName: "c"}},
		{Image: &runtimeapi.ImageSpec{Image: "::nonsense"}},
	}
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web"}, Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Image: "latest"}},
		InitContainers: []corev1.Container{{Image: "registry.example/init:1"}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "registry.example/volume:1"}}}, {},
		},
	}}}
	inUse := InUse(images, containers, pods, "registry.k8s.io/pause:3.6")
	want := []string{"b", "c", "d", "e", "f,kata", "h", id}
	if got := slices.Sorted(maps.Keys(inUse)); !slices.Equal(got, want) {
		t.Errorf("in use are %q, want %q", got, want)
	}
	if inUse["f,kata"] != "container c of n/p" || inUse["b"] != "pod n/web" {
		t.Errorf("users: %q", inUse)
	}
}

// An image that was in use while gc didn't run isn't removed for its age: only the time counts in which it was seen
// unused. The order of the images stays.
func TestTimeInWhichNobodyLooked(t *testing.T) {
	images := []*runtimeapi.Image{{Id: "a"}, {Id: "b"}}
	records := map[string]Record{
		"a": {FirstSeen: epoch, LastUsed: epoch.Add(10 * time.Minute)},
		"b": {FirstSeen: epoch, LastUsed: epoch.Add(5 * time.Minute)},
	}
	for now := epoch.Add(10 * time.Minute); now.Before(epoch.Add(time.Hour)); now = now.Add(5 * time.Minute) {
		records = Update(records, images, nil, now)
	}
	in := Input{Policy: Policy{High: 85, Low: 80, MaxAge: 24 * time.Hour}, Images: images}
	for _, c := range []struct {
		away time.Duration
		want string
	}{
		{0, "keep b: unused for 50m0s"},
		{72 * time.Hour, "keep b: unused for 50m0s"},
		{5 * time.Minute, "keep b: unused for 55m0s"},
	} {
		in.Now = epoch.Add(55*time.Minute + c.away)
		in.Records = Update(records, images, nil, in.Now)
		first := Pick(in)[0]
		if got := fmt.Sprintf("%s %s: %s", first.Action, first.Object, first.Reason); !strings.HasPrefix(got, c.want+";") {
			t.Errorf("after %s: %s, want %s", c.away, got, c.want)
		}
	}
}

// The time from the last look of an earlier process to the first of this one makes no image older, however short it is:
// the image may have been in use until a moment ago. At that look none goes for its age, as with the kubelet; what was
// counted before counts at the next.
func TestARestartMakesNoImageOlder(t *testing.T) {
	images := []*runtimeapi.Image{{Id: "a"}}
	path := filepath.Join(t.TempDir(), "images.json")
	records := Update(nil, images, nil, epoch)
	records = Update(records, images, nil, epoch.Add(5*time.Minute))
	if err := Save(path, nil, records); err != nil {
		t.Fatal(err)
	}
	records, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Policy: Policy{High: 85, Low: 80, MaxAge: 4 * time.Minute}, Images: images}
	for _, c := range []struct {
		at   time.Duration
		want string
	}{
		{9 * time.Minute, "keep a: unused for 5m0s;"},
		{10 * time.Minute, "remove image a: unused for 6m0s,"},
	} {
		in.Now = epoch.Add(c.at)
		records = Update(records, images, nil, in.Now)
		in.Records = records
		first := Pick(in)[0]
		if got := fmt.Sprintf("%s %s: %s", first.Action, first.Object, first.Reason); !strings.HasPrefix(got, c.want) {
			t.Errorf("at %s: %s, want %s", c.at, got, c.want)
		}
	}
}

func TestRecords(t *testing.T) {
	images := []*runtimeapi.Image{{Id: "old"}, {Id: "new"}, {Id: "used"}, {Id: "future"}, {Id: "later"}}
	before := map[string]Record{
		"old": {FirstSeen: epoch}, "used": {FirstSeen: epoch}, "gone": {FirstSeen: epoch},
		"future": {FirstSeen: epoch.Add(time.Hour)}, "later": {FirstSeen: epoch, LastUsed: epoch.Add(time.Hour)},
	}
	now := epoch.Add(time.Minute)
	next := Update(before, images, map[string]string{"used": "somebody"}, now)
	want := map[string]Record{
		"old": {FirstSeen: epoch, LastLooked: now}, "new": {FirstSeen: now, LastLooked: now},
		"used":   {FirstSeen: epoch, LastUsed: now, LastLooked: now},
		"future": {FirstSeen: now, LastLooked: now}, "later": {FirstSeen: now, LastLooked: now},
	}
	if !maps.Equal(next, want) {
		t.Errorf("records %+v\nwant %+v", next, want)
	}
	path := filepath.Join(t.TempDir(), "gc", "images.json")
	if records, err := Load(path); err != nil || records != nil {
		t.Errorf("without a file: %v, %v", records, err)
	}
	if err := Save(path, before, next); err != nil {
		t.Fatal(err)
	}
	if records, err := Load(path); err != nil || !maps.EqualFunc(records, want, func(a, b Record) bool {
		return a.FirstSeen.Equal(b.FirstSeen) && a.LastUsed.Equal(b.LastUsed)
	}) {
		t.Errorf("read again: %+v, %v", records, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if records, err := Load(path); err == nil || records != nil {
		t.Errorf("half a file: %v, %v", records, err)
	}
}

type remover func(id string) error

func (r remover) RemoveImage(_ context.Context, i *runtimeapi.ImageSpec) error { return r(i.Image) }

func TestRemove(t *testing.T) {
	choices := []Choice{
		{Image: &runtimeapi.Image{Id: "a"}, Why: forSpace, Decision: topic.Decision{Object: "a", FreedBytes: 5}},
		{Image: &runtimeapi.Image{Id: "b"}, Why: forSpace, Decision: topic.Decision{Object: "b", FreedBytes: 5}},
		{Image: &runtimeapi.Image{Id: "c"}},
		{Image: &runtimeapi.Image{Id: "d"}, Why: forSpace, Decision: topic.Decision{Object: "d", FreedBytes: 5}},
	}
	usedBy := func(i *runtimeapi.Image) string { return map[string]string{"d": "pod x/y"}[i.Id] }
	var told []string
	removed, err := Remove(t.Context(), remover(func(id string) error {
		if id == "b" {
			return errors.New("read-only")
		}
		return nil
	}), choices, usedBy, func(c Choice) { told = append(told, fmt.Sprint(c.Object, c.FreedBytes, c.Error)) })
	if removed != 1 || err == nil || !slices.Equal(told, []string{"a5", "b0read-only", "d0"}) {
		t.Errorf("removed %d, %v, told %q", removed, err, told)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		5: "5 B", 1 << 10: "1.0 KiB", 3 << 20: "3.0 MiB", 5 << 29: "2.5 GiB",
		1 << 52: "4096.0 TiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
