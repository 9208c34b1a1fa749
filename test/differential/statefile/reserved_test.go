package statefile

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
)

// reservation is what TestReservations of internal/memory reads.
type reservation struct {
	Nodes           []lifeNode
	NodeAllocatable corev1.ResourceList
	List            []kubeletconfig.MemoryReservation
	// Errors are what the kubelet may say: where several types are wrong, it is one of them.
	Errors []string
}

func drawReservation(r *rand.Rand) reservation {
	c := reservation{
		NodeAllocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		Nodes:           []lifeNode{{ID: 0, Memory: 99 * gi}, {ID: 1, Memory: 99 * gi}},
	}
	amounts := []string{"1Gi", "512Mi", "1024Mi", "1073741824", "1G", "1536Mi", "0", "1e9"}
	names := []corev1.ResourceName{"memory", "hugepages-1Gi", "hugepages-2Mi"}
	for id := range int32(3) {
		if id == 2 && r.Intn(8) > 0 {
			continue // the machine has no such node
		}
		limits := corev1.ResourceList{}
		for _, name := range names {
			if r.Intn(2) == 0 {
				limits[name] = resource.MustParse(amounts[r.Intn(len(amounts))])
			}
		}
		c.List = append(c.List, kubeletconfig.MemoryReservation{NumaNode: id, Limits: limits})
		for name, q := range limits {
			if r.Intn(12) > 0 {
				sum := c.NodeAllocatable[name]
				sum.Add(q)
				c.NodeAllocatable[name] = sum
			}
		}
	}
	return c
}

func TestReservations(t *testing.T) {
	var cases []reservation
	accepted, refused := 0, 0
	dir := t.TempDir()
	for seed := range int64(300) {
		c := drawReservation(rand.New(rand.NewSource(seed)))
		for range 30 {
			_, err := memorymanager.NewManager(klog.Background(), "Static", machineInfo(c.Nodes), c.NodeAllocatable, c.List,
				dir, nil)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if !slices.Contains(c.Errors, text) {
				c.Errors = append(c.Errors, text)
			}
		}
		if c.Errors[0] == "" {
			accepted++
		} else {
			refused++
		}
		cases = append(cases, c)
	}
	if accepted < 30 || refused < 30 {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
	data, err := json.Marshal(cases) //nolint:musttag // the keys are the names of the fields
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "reservations.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, ok := kubelot(t, "memory", "TestReservations", "KUBELOT_RESERVATIONS", dir)
	if !ok || !strings.Contains(out, "reservations: 300\n") {
		t.Error(tail(out))
	}
}
