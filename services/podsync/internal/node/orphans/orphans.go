package orphans

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/tree"
)

// orphansOf are the UIDs found on disk or among the cgroups that are neither wanted nor observed, sorted.
func orphansOf(found []types.UID, wanted, observed map[types.UID]bool) []types.UID {
	var orphans []types.UID
	for _, uid := range found {
		if !wanted[uid] && !observed[uid] {
			orphans = append(orphans, uid)
		}
	}
	slices.Sort(orphans)
	return slices.Compact(orphans)
}

// podDirs are the UIDs that have a directory under <rootDir>/pods.
func podDirs(rootDir string) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(rootDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var uids []types.UID
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return uids, nil
}

// RemovePodDir removes <rootDir>/pods/<uid>. It refuses while something is mounted below and names the mount, and
// while a CSI driver has not taken a volume back, of which nothing is mounted after a reboot. It is no error if there
// is none.
//
//nolint:contextcheck,nolintlint // it has no context: half a directory is of no use. contextcheck reads this for its callers, unknown to nolintlint
func RemovePodDir(rootDir string, uid types.UID) error {
	if !element(string(uid)) {
		return fmt.Errorf("remove the directory of pod %q: the UID is not the name of a directory", uid)
	}
	dir := filepath.Join(rootDir, "pods", string(uid))
	if records, _ := filepath.Glob(filepath.Join(dir, "volumes/kubernetes.io~csi/*/vol_data.json")); len(records) > 0 {
		return fmt.Errorf("remove the directory of pod %s: its driver has not taken back the volume of %s", uid, records[0])
	}
	if err := tree.Remove(context.Background(), dir); err != nil {
		return fmt.Errorf("remove the directory of pod %s: %w", uid, err)
	}
	return nil
}

// LogDir is <podLogsDir>/<namespace>_<name>_<uid>.
func LogDir(podLogsDir, namespace, name string, uid types.UID) string {
	return filepath.Join(podLogsDir, logDir(namespace, name, uid))
}

func logDir(namespace, name string, uid types.UID) string {
	return labels.LogDir(topic.Ref{Namespace: namespace, Name: name, UID: string(uid)})
}

// RemoveLogDir removes the pod's log directory. It is no error if there is none.
//
//nolint:contextcheck,nolintlint // as RemovePodDir
func RemoveLogDir(podLogsDir, namespace, name string, uid types.UID) error {
	dir := logDir(namespace, name, uid)
	if !element(dir) {
		return fmt.Errorf("remove the logs of pod %s/%s: %q is not the name of a directory", namespace, name, dir)
	}
	if err := tree.Remove(context.Background(), filepath.Join(podLogsDir, dir)); err != nil {
		return fmt.Errorf("remove the logs of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

const (
	// maxName is the longest name that a file can have.
	maxName    = 255
	linkSuffix = ".log"
)

// LogLink is the path of the link that log collectors follow: <dir>/<pod>_<namespace>_<container>-<id>.log. The
// name is cut where it would be too long, as the kubelet cuts it.
func LogLink(dir, pod, namespace, container, id string) string {
	return filepath.Join(dir, cut(fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id))+linkSuffix)
}

// cut cuts what is before a link's suffix to the length for which there is room.
func cut(base string) string { return base[:min(len(base), maxName-len(linkSuffix))] }

// element reports whether s is a single path element.
func element(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// Skeleton is the part of a pod that the runtime knows.
func Skeleton(obs topic.PodObservation) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: obs.Namespace, Name: obs.Name, UID: types.UID(obs.UID)}}
	seen := map[string]bool{}
	for _, c := range obs.Containers {
		if !seen[c.Name] {
			seen[c.Name] = true
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return pod
}
