package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Disk is a loop device of 64 MiB, for the time of the test.
func Disk(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("make a loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

// DiskHeld is an error that names the loop devices which hold a disk for the pod.
func DiskHeld(pod *corev1.Pod) error {
	out, err := exec.Command("losetup", "--list", "--noheadings", "--output", "BACK-FILE").Output()
	if err == nil && strings.Contains(string(out), string(pod.UID)) {
		return fmt.Errorf("the disk is held: %s", out)
	}
	return err
}

// Local is a directory or disk of the node.
func Local(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
}

// Volume makes a persistent volume of the bed's node for the claims of the namespace (see Claim), and returns its name.
// Its data stays when it goes, with the test.
func (n *Namespace) Volume(source corev1.PersistentVolumeSource, change func(*corev1.PersistentVolumeSpec)) string {
	n.t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: n.Name + "-"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: source, StorageClassName: n.Name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
						Values: []string{NodeName},
					}},
				}},
			}},
		},
	}
	if change != nil {
		change(&pv.Spec)
	}
	volumes := n.bed.Client.CoreV1().PersistentVolumes()
	pv, err := volumes.Create(n.t.Context(), pv, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = volumes.Delete(context.Background(), pv.Name, metav1.DeleteOptions{}) })
	return pv.Name
}

// For binds a volume to the claim of that name.
func (n *Namespace) For(claim string, mode corev1.PersistentVolumeMode) func(*corev1.PersistentVolumeSpec) {
	return func(s *corev1.PersistentVolumeSpec) {
		s.ClaimRef, s.VolumeMode = &corev1.ObjectReference{Namespace: n.Name, Name: claim}, &mode
	}
}

// Claim is the manifest of a claim for what Volume makes; more is added to its spec as YAML that begins with a comma.
func (n *Namespace) Claim(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\n"+
		"spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}%s}\n---\n",
		name, n.Name, more)
}
