package resource

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
)

func TestAPodGetsDevices(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0", "g1", "g2")
		if got := b.node().Devices; !reflect.DeepEqual(got, map[corev1.ResourceName]topic.DeviceCount{gpu: {
			Capacity: 3, Allocatable: 3,
		}}) {
			t.Errorf("the node has %v", got)
		}
		pod := b.wants("a", map[corev1.ResourceName]string{gpu: "2"})
		b.says("a", "allocated")
		want := topic.ContainerAllocation{
			Devices: []topic.AllocatedDevice{
				{Resource: gpu, ID: "g1", Health: "Healthy"}, {Resource: gpu, ID: "g2", Health: "Healthy"},
			},
			Env: []topic.EnvVar{{Name: "IDS", Value: "g1,g2"}}, PreStart: true,
		}
		if got := b.allocation("a").Containers["app"]; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
		if !strings.Contains(b.file("kubelet_internal_checkpoint"), `"PodUID":"a"`) {
			t.Error("the checkpoint doesn't have the pod")
		}
		if _, err := topic.ResourcePreStart.Do(b.t.Context(), b.others, topic.PreStartRequest{
			Ref: topic.RefOf(pod), Container: "app",
		}); err != nil || b.calls()[len(b.calls())-1] != "PreStart "+gpu+" g1,g2" {
			t.Errorf("%v, %v", b.calls(), err)
		}

		b.wants("b", map[corev1.ResourceName]string{gpu: "2"})
		b.says("b", "refused UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "+
			gpu+". Requested: 2, Available: 1, which is unexpected")
		b.state(pod, topic.Terminated)
		b.says("a", "released")
		b.wants("c", map[corev1.ResourceName]string{gpu: "3"})
		b.says("c", "allocated")
	})
}

// With each pod of a burst there is something new to say. What the others have isn't found out again for that.
func TestWhatOtherPodsHaveIsNotFoundOutAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(nic, "n0")
		b.lists(gpu, "g0")
		b.wants("a", map[corev1.ResourceName]string{nic: "1"})
		b.says("a", "allocated")
		before := b.options[nic]
		b.wants("b", map[corev1.ResourceName]string{gpu: "1"})
		b.says("b", "allocated")
		if more := b.options[nic] - before; before == 0 || more != 0 {
			t.Errorf("what the first pod has was found out %d times, and %d times more for another pod", before, more)
		}
	})
}

func TestAnUnhealthyDeviceIsToldOf(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu})
		d := b.allocation("a").Containers["app"].Devices
		if len(d) != 1 || d[0].Health != corev1.ResourceHealthStatusUnhealthy {
			t.Errorf("got %v", d)
		}
		b.service.report(b.t.Context(), deviceplugin.Report{Resource: gpu, Away: true})
		if n := b.node().Devices[gpu]; n.Allocatable != 0 {
			t.Errorf("the node has %v", n)
		}
		time.Sleep(6 * time.Minute)
		if n := b.node(); len(n.Devices) != 0 || len(n.Gone) != 1 || n.Gone[0] != gpu {
			t.Errorf("the node has %v", n)
		}
	})
}

func TestAPluginThatHangsHoldsUpNoOtherResource(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.hang[gpu] = make(chan struct{})
		b.lists(gpu, "g0")
		b.lists(nic, "n0")
		hung := b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.says("a", "allocating: waiting for device plugins to allocate its devices")
		b.wants("b", map[corev1.ResourceName]string{nic: "1"})
		b.says("b", "allocated")
		// One that comes meanwhile isn't refused for want of what may become free.
		b.wants("c", map[corev1.ResourceName]string{gpu: "1"})
		b.says("c", "allocating: waiting for other pods that may get less than is kept for them, or end: requested number "+
			"of devices unavailable for "+gpu+". Requested: 1, Available: 0")

		// A pod that ends gives back what is kept for it.
		b.mu.Lock()
		delete(b.hang, gpu)
		b.mu.Unlock()
		b.state(hung, topic.Terminated)
		b.says("a", "released")
		b.says("c", "allocated")
		b.wants("d", map[corev1.ResourceName]string{gpu: "1"})
		b.says("d", "refused UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "+
			gpu+". Requested: 1, Available: 0, which is unexpected")
	})
}

func TestAPluginThatRefuses(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.fail = errors.New("rpc error: it is on fire")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.says("a", "refused UnexpectedAdmissionError: Allocate failed due to rpc error: it is on fire, which is unexpected")
		b.mu.Lock()
		b.fail = nil
		b.mu.Unlock()
		b.wants("b", map[corev1.ResourceName]string{gpu: "1"})
		b.says("b", "allocated")
	})
}

// A restarted daemon asks no plugin again for what pods have, takes back what pods have had that are gone, and has new
// pods wait for a plugin that was there before, for a time.
func TestARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0", "g1")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.wants("gone", map[corev1.ResourceName]string{gpu: "1"})
		before, asked := b.allocation("a"), len(b.calls())
		b.stop()
		if err := errors.Join(b.pods.Delete("gone"), b.sources.Set("", topic.Sources{})); err != nil {
			t.Fatal(err)
		}
		var said []topic.AllocationPhase
		changes, err := topic.PodAllocation.Watch(b.t.Context(), b.others, "a")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for c := range changes {
				if !c.Synced {
					said = append(said, c.Value.Phase)
				}
			}
		}()
		synctest.Wait()
		b.start()
		if got := b.allocation("a"); !reflect.DeepEqual(got, before) {
			t.Errorf("got %+v, want %+v", got, before)
		}
		if slices.Contains(said, topic.Allocating) {
			t.Errorf("it was said to be %v", said)
		}
		if n := b.node(); n.Devices[gpu] != (topic.DeviceCount{}) {
			t.Errorf("the node has %v before the plugin is back", n)
		}
		b.wants("new", map[corev1.ResourceName]string{gpu: "1"})
		if a := b.allocation("new"); a.Phase != topic.Allocating || !strings.Contains(a.Message, gpu) {
			t.Errorf("got %+v", a)
		}
		b.lists(gpu, "g0", "g1")
		if a := b.allocation("new"); a.Phase != topic.Allocating || !strings.Contains(a.Message, "all sources of pods") {
			t.Errorf("got %+v", a)
		}
		b.settle("a", "new")
		b.says("new", "allocated")
		b.says("gone", "")
		if n := len(b.calls()) - asked; n != 1 {
			t.Errorf("plugins were asked %d times: %v", n, b.calls())
		}
	})
}

func TestAPluginThatDoesntComeBack(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.stop()
		b.start()
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		time.Sleep(4 * time.Minute)
		if a := b.allocation("a"); a.Phase != topic.Allocating {
			t.Errorf("got %+v", a)
		}
		time.Sleep(2 * time.Minute)
		if a := b.allocation("a"); a.Phase == topic.Allocating {
			t.Errorf("got %+v", a)
		}
	})
}

// After a power failure the API server may be away for longer than pods wait for a plugin.
func TestAPodThatIsKnownLateWaitsForItsPlugin(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.stop()
		if err := b.sources.Set("", topic.Sources{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.start()
		time.Sleep(8 * time.Minute)
		if n := b.node(); len(n.Devices) != 1 || n.Devices[gpu] != (topic.DeviceCount{}) || len(n.Gone) > 0 {
			t.Errorf("the node has %+v", n)
		}
		const why = "allocating: waiting for the device plugin of " + gpu + ", which was here before, to register " +
			"again with healthy devices"
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		b.says("a", why)
		b.settle("a")
		b.says("a", why+"; until "+time.Now().Add(devices.Grace).UTC().Format(time.RFC3339))
		time.Sleep(4 * time.Minute)
		b.lists(gpu, "g0")
		b.says("a", "allocated")
	})
}

// Until a plugin is back after a restart, its containers are made ready for their start as before.
func TestPreStartAfterARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.lists(nic, "n0")
		b.wants("prepared", map[corev1.ResourceName]string{gpu: "1"})
		b.wants("plain", map[corev1.ResourceName]string{nic: "1"})
		b.stop()
		b.strange = true
		b.start()
		for uid, want := range map[string]bool{"prepared": true, "plain": false} {
			if got := b.allocation(uid).Containers["app"]; got.PreStart != want || len(got.Devices) != 1 {
				t.Errorf("%s has %+v", uid, got)
			}
		}
	})
}

// Plugins make the devices of a container ready side by side: each may take its whole time.
func TestPreStartOfTwoPlugins(t *testing.T) {
	inBubble(t, func(b *bed) {
		const fpga = "vendor.example/fpga"
		b.lists(gpu, "g0")
		b.lists(fpga, "f0")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1", fpga: "1"})
		b.says("a", "allocated")
		b.preparing = 20 * time.Second
		before := time.Now()
		_, err := b.service.preStart(b.t.Context(), topic.PreStartRequest{Ref: topic.Ref{UID: "a"}, Container: "app"})
		if took := time.Since(before); err != nil || took != b.preparing {
			t.Errorf("it took %s, %v", took, err)
		}
		calls := b.calls()
		for _, want := range []string{"PreStart " + gpu + " g0", "PreStart " + fpga + " f0"} {
			if !slices.Contains(calls, want) {
				t.Errorf("%q isn't among %q", want, calls)
			}
		}
	})
}

// A podsync that has started again may wait for the API server for long. Which pods there are is known all the same.
func TestPodResourcesAnswersWhilePodsyncWaits(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		if err := b.sources.Set("", topic.Sources{Waiting: []topic.Source{topic.SourceAPI}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		pods, err := source{b.service}.Pods(b.t.Context())
		if err != nil || len(pods) != 1 || len(pods[0].Containers["app"].Devices) != 1 {
			t.Errorf("it shows %+v, %v", pods, err)
		}
		// A daemon that has started again doesn't know which of the pods are gone.
		b.stop()
		b.start()
		if _, err := (source{b.service}).Pods(b.t.Context()); !errors.Is(err, errUntold) {
			t.Errorf("after a restart: %v", err)
		}
		// Of a server of manifests nobody needs to know.
		if err := b.sources.Set("", topic.Sources{Waiting: []topic.Source{topic.SourceHTTP}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if pods, err := (source{b.service}).Pods(b.t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("it shows %+v, %v", pods, err)
		}
	})
}

// A client that has woken the daemon asks before the bus has told of the pods. It is answered all the same.
func TestPodResourcesAnswersWhoHasWokenIt(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		if err := b.sources.Set("", topic.Sources{Waiting: []topic.Source{topic.SourceAPI}}); err != nil {
			t.Fatal(err)
		}
		b.stop()
		b.start()
		shown := make(chan int, 1)
		go func() {
			pods, err := source{b.service}.Pods(b.t.Context())
			if err != nil {
				t.Error(err)
			}
			shown <- len(pods)
		}()
		time.Sleep(time.Second)
		b.settle("a")
		if n := <-shown; n != 1 {
			t.Errorf("it shows %d pods, want 1", n)
		}
	})
}

func TestCPUsOfOnesOwn(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		if got := b.node().SharedCPUs; got != "0-3" {
			t.Errorf("shared are %s", got)
		}
		pod := b.wants("a", map[corev1.ResourceName]string{"cpu": "2", "memory": "1Mi"})
		b.says("a", "allocated")
		if got := b.allocation("a").Containers["app"].CPUs; got != "1-2" {
			t.Errorf("it has %s", got)
		}
		if got := b.node().SharedCPUs; got != "0,3" {
			t.Errorf("shared are %s", got)
		}
		b.wants("b", map[corev1.ResourceName]string{"cpu": "2", "memory": "1Mi"})
		if a := b.allocation("b"); a.Phase != topic.AllocationRefused || a.Reason != "UnexpectedAdmissionError" {
			t.Errorf("got %+v", a)
		}
		b.stop()
		b.start()
		if got := b.allocation("a").Containers["app"].CPUs; got != "1-2" {
			t.Errorf("it has %s after a restart", got)
		}
		b.state(pod, topic.Terminated)
		if got := b.node().SharedCPUs; got != "0-3" {
			t.Errorf("shared are %s", got)
		}
	})
}

func TestNobodyGetsAnythingThatIsNotOnDisk(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.mu.Lock()
		b.written = errors.New("no space left on device")
		b.mu.Unlock()
		b.wants("a", map[corev1.ResourceName]string{gpu: "1"})
		if a := b.allocation("a"); a.Phase != topic.Allocating || !strings.Contains(b.health, "no space left on device") {
			t.Errorf("got %+v, health %q", a, b.health)
		}
		b.mu.Lock()
		b.written = nil
		b.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		b.says("a", "allocated")
		if b.health != "healthy " {
			t.Errorf("health %q", b.health)
		}
	})
}
