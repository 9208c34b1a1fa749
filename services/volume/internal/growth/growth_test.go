package growth

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func sized(size string) corev1.ResourceList {
	if size == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// claim has that capacity, asks for that size, and was allocated another.
func claim(has, asks, allocated string, status corev1.ClaimResourceStatus) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", ResourceVersion: "7"},
		Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: sized(asks)},
		},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: sized(has), AllocatedResources: sized(allocated)},
	}
	if status != "" {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: status,
		}
	}
	return c
}

// A volume that another node has made larger is followed where several nodes write to it, unless the claim says that
// nodes have nothing to do.
func TestFollow(t *testing.T) {
	for _, c := range []struct {
		name, has, of, here, annotation string
		mode                            corev1.PersistentVolumeAccessMode
		status                          corev1.ClaimResourceStatus
		due                             bool
	}{
		{name: "larger elsewhere", has: "2Gi", of: "2Gi", here: "1Gi", due: true},
		{name: "as large", has: "2Gi", of: "2Gi", here: "2Gi"},
		{name: "written otherwise", has: "2Gi", of: "2Gi", here: "2048Mi"},
		{name: "larger here", has: "1Gi", of: "1Gi", here: "2Gi"},
		{name: "unknown here", has: "2Gi", of: "2Gi"},
		{name: "of one node", has: "2Gi", of: "2Gi", here: "1Gi", mode: corev1.ReadWriteOnce},
		{name: "nothing to do", has: "2Gi", of: "2Gi", here: "1Gi", annotation: notRequired},
		{name: "nobody has followed yet", has: "1Gi", of: "2Gi", here: "1Gi"},
		{
			name: "still growing", has: "2Gi", of: "2Gi", here: "1Gi",
			status: corev1.PersistentVolumeClaimControllerResizeInProgress,
		},
	} {
		pvc, pv := claim(c.has, c.of, "", c.status), &corev1.PersistentVolume{}
		pv.Spec.Capacity = sized(c.of)
		pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, cmp.Or(c.mode, corev1.ReadWriteMany)}
		if c.annotation != "" {
			pvc.Annotations = map[string]string{c.annotation: ""}
		}
		step, due := Follow(pvc, pv, c.here)
		if due != c.due || due && (step.Size.String() != c.of || !step.Told || step.Begin) {
			t.Errorf("%s: %+v, due %v", c.name, step, due)
		}
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name                 string
		has, allocated, of   string
		status               corev1.ClaimResourceStatus
		size                 string
		begin, due, mayBeDue bool
	}{
		{name: "as large as the volume", has: "1Gi", of: "1Gi"},
		{name: "larger", has: "2Gi", of: "1Gi", status: corev1.PersistentVolumeClaimNodeResizePending, mayBeDue: true},
		{name: "no state, as of old controllers", has: "1Gi", of: "2Gi", size: "2Gi", due: true},
		{name: "a volume larger than what was asked for", has: "1Gi", allocated: "1Gi", of: "2Gi"},
		{
			name: "pending", has: "1Gi", allocated: "2Gi", of: "2Gi", status: corev1.PersistentVolumeClaimNodeResizePending,
			size: "2Gi", begin: true, due: true, mayBeDue: true,
		},
		{
			name: "under way, smaller than the volume", has: "1Gi", allocated: "2Gi", of: "3Gi",
			status: corev1.PersistentVolumeClaimNodeResizeInProgress, size: "2Gi", begin: true, due: true, mayBeDue: true,
		},
		{
			name: "the controller's", has: "1Gi", allocated: "2Gi", of: "2Gi",
			status: corev1.PersistentVolumeClaimControllerResizeInProgress, mayBeDue: true,
		},
		{
			name: "infeasible", has: "1Gi", allocated: "2Gi", of: "2Gi",
			status: corev1.PersistentVolumeClaimNodeResizeInfeasible, mayBeDue: true,
		},
		{name: "a volume without a size", has: "1Gi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: sized(c.of)}}
			of := claim(c.has, c.has, c.allocated, c.status)
			s, due := Next(of, pv)
			if due != c.due || s.Begin != c.begin || due && s.Size.String() != c.size {
				t.Errorf("%+v, %v", s, due)
			}
			if got := MayBeDue(of); got != c.mayBeDue {
				t.Errorf("it may be due: %v", got)
			}
		})
	}
}

// applied is the claim after the patch.
func applied(t *testing.T, c *corev1.PersistentVolumeClaim, patch []byte, err error) corev1.PersistentVolumeClaim {
	t.Helper()
	var out corev1.PersistentVolumeClaim
	before, encodeErr := json.Marshal(c)
	after, patchErr := strategicpatch.StrategicMergePatch(before, patch, c)
	if err := errors.Join(err, encodeErr, patchErr, json.Unmarshal(after, &out)); err != nil {
		t.Fatal(err)
	}
	if out.UID != "u" {
		t.Errorf("the patch is of %q", out.UID)
	}
	return out
}

func TestPatches(t *testing.T) {
	c := claim("1Gi", "2Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizePending)
	for _, kind := range append(resizing, "Kept") {
		c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{
			Type: kind, Status: corev1.ConditionTrue,
		})
	}
	data, err := Begun(c)
	if got := applied(t, c, data, err).Status; got.AllocatedResourceStatuses[corev1.ResourceStorage] !=
		corev1.PersistentVolumeClaimNodeResizeInProgress || len(got.Conditions) != 5 {
		t.Errorf("begun: %+v", got)
	}
	data, err = Finished(c, resource.MustParse("2Gi"))
	got := applied(t, c, data, err).Status
	if has := got.Capacity[corev1.ResourceStorage]; has.String() != "2Gi" || len(got.AllocatedResourceStatuses) != 0 ||
		len(got.Conditions) != 1 || got.Conditions[0].Type != "Kept" {
		t.Errorf("finished: %+v", got)
	}
	if has := got.AllocatedResources[corev1.ResourceStorage]; has.String() != "2Gi" {
		t.Errorf("finished: %+v", got)
	}
}

func TestFailed(t *testing.T) {
	const pending = corev1.PersistentVolumeClaimNodeResizePending
	again, failed := claim("1Gi", "3Gi", "2Gi", pending), claim("1Gi", "2Gi", "2Gi", pending)
	for _, c := range []*corev1.PersistentVolumeClaim{again, failed} {
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
			Message: "failed to expand pvc with " + ErrFinal.Error(),
		}}
	}
	for _, c := range []struct {
		name   string
		claim  *corev1.PersistentVolumeClaim
		why    error
		begin  bool
		status corev1.ClaimResourceStatus
		silent bool
	}{
		{"it may be at it", claim("1Gi", "2Gi", "2Gi", pending), errors.New("late"), true, pending, true},
		{"in use", claim("1Gi", "2Gi", "2Gi", pending), ErrInUse, true, pending, false},
		{"unsupported", claim("1Gi", "2Gi", "2Gi", pending), ErrUnsupported, true, pending, false},
		{"final again", failed, ErrFinal, true, pending, true},
		{"final", claim("1Gi", "2Gi", "2Gi", pending), fmt.Errorf("%w: no", ErrFinal), true, pending, false},
		{
			"infeasible", claim("1Gi", "2Gi", "2Gi", pending), fmt.Errorf("%w: no", ErrInfeasible), true,
			corev1.PersistentVolumeClaimNodeResizeInfeasible, false,
		},
		{
			"another size is asked for, the first failure", claim("1Gi", "3Gi", "2Gi", pending), ErrFinal, true, pending,
			false,
		},
		{
			"another size is asked for, failed before", again, ErrFinal, true,
			corev1.PersistentVolumeClaimNodeResizeInfeasible, false,
		},
		{"an old controller", claim("1Gi", "2Gi", "", ""), ErrInfeasible, false, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := Failed(c.claim, Step{Size: resource.MustParse("2Gi"), Begin: c.begin}, c.why, time.Unix(1000, 0))
			if c.silent {
				if data != nil || err != nil {
					t.Errorf("%s, %v", data, err)
				}
				return
			}
			got := applied(t, c.claim, data, err).Status
			if got.AllocatedResourceStatuses[corev1.ResourceStorage] != c.status || len(got.Conditions) != 1 ||
				got.Conditions[0].Message != "failed to expand pvc with "+c.why.Error() {
				t.Errorf("%+v", got)
			}
		})
	}
}
