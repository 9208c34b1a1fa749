package csi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// labeledBed is a bed on a node with SELinux, whose driver mounts with labels.
func labeledBed(t *testing.T) *bed {
	t.Helper()
	spec, yes := unattached(), true
	spec.SELinuxMount = &yes
	b := newBed(t, spec)
	b.everyMode(false)
	return b
}

// everyMode is another process on the node, with the feature gate SELinuxMount on or off.
func (b *bed) everyMode(on bool) {
	b.restart()
	b.volumes.ports.Labels = selinux.NewBook(func(o *corev1.SELinuxOptions) (string, error) {
		return "u:r:t:" + o.Level, nil
	}, on)
}

// labeled is the request of a pod whose containers have the volume and these levels; an empty one is none.
func labeled(uid string, levels ...string) plugin.Request {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
	for _, level := range levels {
		c := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}
		if level != "" {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return plugin.Request{Pod: pod, Volume: &corev1.Volume{Name: "v"}, Calls: silent{}}
}

// ofOnePod is a persistent volume that only one pod may have.
func ofOnePod() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	pv.Spec.MountOptions = []string{"noatime"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h/1"}
	return pv
}

// goes takes the volume from the pod as the daemon does.
func (b *bed) goes(uid string) {
	b.t.Helper()
	b.volumes.ports.Labels.Leave(uid, "v")
	b.gives(uid)
}

// flags are the mount options of the last calls to stage and to publish.
func (b *bed) flags() (stage, publish []string) {
	for _, r := range b.node.requests {
		if r, ok := r.(*csiapi.NodeStageVolumeRequest); ok {
			stage = r.GetVolumeCapability().GetMount().GetMountFlags()
		}
	}
	return stage, b.node.last.GetVolumeCapability().GetMount().GetMountFlags()
}

// labels mounts the volume and expects that it has the label; empty for none.
func (b *bed) labels(r plugin.Request, pv *corev1.PersistentVolume, label string) {
	b.t.Helper()
	result, err := b.volumes.MountPersistent(b.t.Context(), r, pv, false)
	if err != nil {
		b.t.Fatal(err)
	}
	if result.SELinuxRelabel != (label == "") {
		b.t.Errorf("the runtime is to label the files: %v", result.SELinuxRelabel)
	}
	want := slices.Clone(pv.Spec.MountOptions)
	if label != "" {
		want = append(want, `context="`+label+`"`)
	}
	if stage, publish := b.flags(); !slices.Equal(stage, want) || !slices.Equal(publish, want) {
		b.t.Errorf("staged with %q and published with %q; want %q", stage, publish, want)
	}
}

// The label goes into both calls. The next process, which may not know the pod's wish any more, has it from the record,
// as has a kubelet.
func TestSELinuxLabelIsMounted(t *testing.T) {
	b := labeledBed(t)
	r := labeled("u1", "", "s0:c1,c2", "s0:c1,c2")
	b.labels(r, ofOnePod(), "u:r:t:s0:c1,c2")
	record, err := readRecord(b.podDir("u1"))
	if err != nil || record["seLinuxMountContext"] != "u:r:t:s0:c1,c2" {
		t.Errorf("the record is %v, %v", record, err)
	}
	b.everyMode(false)
	b.labels(r, ofOnePod(), "u:r:t:s0:c1,c2")
	b.calls("stage", "publish")
	b.gives("u1")
}

// The next pod may want another label, before the volume was unstaged.
func TestSELinuxLabelOfTheNextPod(t *testing.T) {
	for _, c := range []struct {
		level, label string
		calls        []string
	}{
		{"s0:c3", "u:r:t:s0:c3", []string{"unstage", "stage", "publish"}},
		{"", "", []string{"unstage", "stage", "publish"}},
		{"s0:c1", "u:r:t:s0:c1", []string{"publish"}},
	} {
		b := labeledBed(t)
		b.labels(labeled("u1", "s0:c1"), ofOnePod(), "u:r:t:s0:c1")
		b.goes("u1")
		b.labels(labeled("u2", c.level), ofOnePod(), c.label)
		b.calls(append([]string{"stage", "publish", "unpublish"}, c.calls...)...)
	}
}

// forAll is a persistent volume that many pods may have.
func forAll() *corev1.PersistentVolume {
	pv := ofOnePod()
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return pv
}

// waitsFor expects that the pod doesn't get the volume for that reason.
func (b *bed) waitsFor(r plugin.Request, pv *corev1.PersistentVolume, want plugin.Failure) {
	b.t.Helper()
	_, err := b.volumes.MountPersistent(b.t.Context(), r, pv, false)
	var failure *plugin.Failure
	if !errors.As(err, &failure) || failure.Reason != "FailedMount" || failure.OnItsWay != want.OnItsWay ||
		failure.Attacher != "" || !strings.HasPrefix(err.Error(), want.Error()) {
		b.t.Errorf("%+v: %v; want %+v: %v", failure, err, want, want.Error())
	}
}

// With the feature gate, pods share a volume if they want the same label.
func TestSELinuxLabelOfManyPods(t *testing.T) {
	b := labeledBed(t)
	b.everyMode(true)
	b.labels(labeled("u1", "s0:c1"), forAll(), "u:r:t:s0:c1")
	b.labels(labeled("u2", "s0:c1"), forAll(), "u:r:t:s0:c1")
	b.waitsFor(labeled("u3", "s0:c3"), forAll(), plugin.Failure{
		What: "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process " +
			"volumes=[v]: ",
		Err: errors.New(`conflicting SELinux labels of volume pv: "u:r:t:s0:c1" and "u:r:t:s0:c3": `),
	})
	b.goes("u1")
	b.goes("u2")
	b.labels(labeled("u3", "s0:c3"), forAll(), "u:r:t:s0:c3")
	b.calls("stage", "publish", "publish", "unpublish", "unpublish", "unstage", "stage", "publish")
}

// A volume may be mounted with another label and the pod that has it is about to go, or isn't known to this process.
// The next pod waits: it would have the volume with the wrong label.
func TestSELinuxLabelElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		first, second bool
		label         string
	}{
		"another label":          {true, true, "u:r:t:s0:c2"},
		"the gate is off by now": {true, false, ""},
		"the gate is on by now":  {false, true, "u:r:t:s0:c2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := labeledBed(t)
			b.everyMode(c.first)
			before := ""
			if c.first {
				before = "u:r:t:s0:c1"
			}
			b.labels(labeled("u1", "s0:c1"), forAll(), before)
			b.everyMode(c.second)
			b.waitsFor(labeled("u2", "s0:c2"), forAll(), plugin.Failure{
				What: `MountVolume.SetUp failed for volume "pv" : `, OnItsWay: true,
				Err: errors.New(`waiting for unmount of volume "kubernetes.io/csi/d^h/1", because it is already mounted to a ` +
					"different pod with a different SELinux label"),
			})
			b.goes("u1")
			b.labels(labeled("u2", "s0:c2"), forAll(), c.label)
			b.calls("stage", "publish", "unpublish", "unstage", "stage", "publish")
		})
	}
}

// A driver's volume of the pod's own spec gets no label, whatever the gate says.
func TestSELinuxLabelOfThePodsOwnVolume(t *testing.T) {
	yes := true
	b := newBed(t, storagev1.CSIDriverSpec{SELinuxMount: &yes})
	b.everyMode(true)
	r := labeled("u1", "s0:c1")
	r.Volume.CSI, r.Dir = &corev1.CSIVolumeSource{Driver: "d"}, b.dir()
	result, err := b.volumes.Mount(t.Context(), r)
	if flags := b.node.last.GetVolumeCapability().GetMount().GetMountFlags(); err != nil || len(flags) > 0 ||
		!result.SELinuxRelabel {
		t.Errorf("mounted with %q: %+v, %v", flags, result, err)
	}
}

// A volume is mounted with a label only where everybody wants that.
func TestSELinuxLabelNeedsAll(t *testing.T) {
	no := false
	for name, change := range map[string]func(*bed, *corev1.PersistentVolume){
		"a node without SELinux": func(b *bed, _ *corev1.PersistentVolume) {
			b.volumes.ports.Labels = nil
		},
		"a driver that can't": func(b *bed, _ *corev1.PersistentVolume) {
			object, err := b.drivers.Object("d")
			if err != nil {
				b.t.Fatal(err)
			}
			object = object.DeepCopy()
			object.Spec.SELinuxMount = &no
			b.drivers.SetObject("d", object)
		},
		"several pods, without the feature gate": func(_ *bed, pv *corev1.PersistentVolume) {
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadWriteOnce}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, r, pv := labeledBed(t), labeled("u1", "s0:c1"), ofOnePod()
			change(b, pv)
			b.labels(r, pv, "")
		})
	}
}

// A driver that refuses to unstage is asked again: what is mounted has the old label still.
func TestSELinuxLabelWhereUnstagingFails(t *testing.T) {
	b := labeledBed(t)
	b.labels(labeled("u1", "s0:c1"), ofOnePod(), "u:r:t:s0:c1")
	b.goes("u1")
	b.node.answers["unstage"] = []error{status.Error(codes.Internal, "not now")}
	next := labeled("u2", "s0:c2")
	if _, err := b.volumes.MountPersistent(t.Context(), next, ofOnePod(), false); err == nil {
		t.Error("the pod has a volume that couldn't be unstaged")
	}
	b.labels(next, ofOnePod(), "u:r:t:s0:c2")
	b.calls("stage", "publish", "unpublish", "unstage", "unstage", "stage", "publish")
}

func TestSELinuxLabelsThatDiffer(t *testing.T) {
	b := labeledBed(t)
	b.waitsFor(labeled("u1", "s0:c1", "s0:c2"), ofOnePod(), plugin.Failure{
		What: "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process " +
			"volumes=[v]: ",
		Err: errors.New("multiple SELinux labels found: u:r:t:s0:c1,u:r:t:s0:c2: "),
	})
	b.calls()
}
