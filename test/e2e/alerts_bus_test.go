package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/pause"
	"kubelot.dev/test/e2e/kit"
)

// changing is how many large pods change while a reader reads nothing: their changes are more than a connection holds.
const changing = 20

// busFails has the bus keep its messages on a disk of 64 MiB, so that it may keep the least that it ever may, and
// has more pods come than that has room for. Then a reader doesn't read what changes, and in the end the disk hangs.
func busFails(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	disk := own.Bed.Path("store")
	kit.Loopback(t, disk, 64)
	shell(t, "mount", "--bind", disk, filepath.Join(own.Node.RunDir(), "bus"))
	own.Signal(t, "bus", syscall.SIGKILL)
	kit.Eventually(t, "the bus's new limit", func() error {
		values, err := p.values(t.Context(), "kubelot_bus_store_limit_bytes < 32 * 1024 * 1024")
		if err == nil && len(values) == 0 {
			err = errors.New("it is larger")
		}
		return err
	})
	ns := own.Namespace(t)
	ns.Apply(pod("innocent", `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]`+"\n"))
	innocent := ns.Wait("innocent", "Ready", kit.Ready)
	large := fill(t, own, ns)
	p.fireAll(t, map[string]string{"KubelotBusFull": "% full."})
	// New pods wait, but those that the bus knows can end, which makes room.
	ns.Delete("innocent", -1)
	ns.Gone(innocent)
	for _, pod := range large[changing:] {
		ns.Delete(pod.Name, 0)
	}
	kit.Eventually(t, "room", func() error {
		full, err := fullness(t, own)
		if err == nil && full > 0.5 {
			err = fmt.Errorf("%.0f %% are full", 100*full)
		}
		return err
	})
	readsNothing(t, own, p, large[:changing])
	shell(t, "fsfreeze", "--freeze", disk)
	defer shell(t, "fsfreeze", "--unfreeze", disk)
	p.fireAll(t, map[string]string{`KubelotDaemonHangs",daemon="bus`: "The daemon bus of "})
	p.noneFires(t, `KubelotDaemonDown",daemon="bus`) // it only hangs
}

// fill makes more large pods than the bus takes.
func fill(t *testing.T, own *kit.Bed, ns *kit.Namespace) (large []*corev1.Pod) {
	t.Helper()
	for range 80 {
		large = append(large, largePod(t, own, ns, len(large)))
	}
	kit.Eventually(t, "a full bus", func() error {
		full, err := fullness(t, own)
		if err == nil && full < 0.97 {
			err = fmt.Errorf("%d pods fill %.0f %% of it", len(large), 100*full)
		}
		return err
	})
	return large
}

// fullness is which part of its limit the bus keeps.
func fullness(t *testing.T, own *kit.Bed) (float64, error) {
	t.Helper()
	page, err := own.TryPage(t.Context(), "bus", "/metrics")
	if err != nil {
		return 0, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), " "); found {
			if figures[name], err = strconv.ParseFloat(value, 64); strings.HasPrefix(name, "kubelot_bus_store_") && err != nil {
				return 0, err
			}
		}
	}
	limit := figures["kubelot_bus_store_limit_bytes"]
	if limit == 0 {
		return 0, errors.New("the bus has no limit")
	}
	return figures["kubelot_bus_store_bytes"] / limit, nil
}

// largePod makes a pod of this node with as many annotations as there may be. It waits for ever for a ConfigMap.
func largePod(t *testing.T, own *kit.Bed, ns *kit.Namespace, number int) *corev1.Pod {
	t.Helper()
	noise := make([]byte, (256<<10-64)/2) // it can't be compressed
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	none := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "none"},
	}}
	made, err := own.Client.CoreV1().Pods(ns.Name).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("large-%d", number), Annotations: map[string]string{"noise": hex.EncodeToString(noise)},
		},
		Spec: corev1.PodSpec{
			NodeName: kit.NodeName,
			Containers: []corev1.Container{{
				Name: "app", Image: "busybox:1.36", VolumeMounts: []corev1.VolumeMount{{Name: "none", MountPath: "/none"}},
			}},
			Volumes: []corev1.Volume{{Name: "none", VolumeSource: none}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// readsNothing stops a daemon while what it reads changes, again and again until both alerts have been seen: the bus
// cuts off a reader to which it could write nothing for ten seconds. How soon that begins depends on how many changes
// the machine gets through.
func readsNothing(t *testing.T, own *kit.Bed, p *prometheus, pods []*corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var patches sync.WaitGroup
	defer patches.Wait()
	defer cancel()
	for worker := range 4 {
		patches.Go(func() {
			for i := worker; ctx.Err() == nil; i++ {
				// 20 changes a second, about 6 MiB, are enough. More would slow down the tests that run at the same time.
				pause.For(ctx, 200*time.Millisecond)
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"mark":"%d"}}}`, i)
				pod := pods[i%len(pods)]
				if _, err := own.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
					metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					t.Log(err) // the next ones are as good
				}
			}
		})
	}
	lags := errors.New("nobody has looked yet")
	kit.Eventually(t, "the alerts of a reader that lags and of one that is cut off", func() error {
		own.Signal(t, "probe", syscall.SIGSTOP)
		defer own.Signal(t, "probe", syscall.SIGCONT)
		var both error
		for range 60 {
			time.Sleep(500 * time.Millisecond)
			if lags != nil {
				lags = p.fires(t.Context(), `KubelotBusLag",reader="probe`, "The daemon probe of ")
			}
			both = errors.Join(lags, p.fires(t.Context(), "KubelotBusDropsReaders", "has cut off a reader"))
			if both == nil {
				break
			}
		}
		return both
	})
}
