package critest

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testStats is about the writable layers: the rest of the usage is read from cgroups. A layer is measured a while after
// its container's start.
func testStats(t *testing.T, target Target) {
	ctx, pod, other := deadline(t), newPod(t, target, "stats"), newPod(t, target, "stats-other")
	box := pod.run(ctx, t)
	id := pod.start(ctx, t, box, pod.container("app", "sleep", "3600"))
	otherBox := other.run(ctx, t)
	other.start(ctx, t, otherBox, other.container("app", "sleep", "3600"))
	eventually(ctx, t, func() error {
		list, err := target.Client.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{PodSandboxId: box})
		if err != nil {
			return err
		}
		if len(list) != 1 || list[0].GetAttributes().GetId() != id {
			return fmt.Errorf("the stats of one sandbox's containers are %v, want those of %s alone", list, id)
		}
		layer := list[0].GetWritableLayer()
		if layer.GetUsedBytes().GetValue() == 0 || layer.GetFsId().GetMountpoint() == "" || layer.GetTimestamp() == 0 {
			return fmt.Errorf("the writable layer has the usage %v", layer)
		}
		return nil
	})
	all, err := target.Client.ListContainerStats(ctx, nil)
	must(t, err)
	if len(all) < 2 {
		t.Errorf("the stats of all containers are %v, want at least two", all)
	}
}
