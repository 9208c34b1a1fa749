package claims

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

func text(s string) *string { return &s }

func newPod(all ...corev1.PodResourceClaim) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       corev1.PodSpec{ResourceClaims: all},
	}
}

func TestNeeds(t *testing.T) {
	direct := corev1.PodResourceClaim{Name: "a", ResourceClaimName: text("one")}
	made := corev1.PodResourceClaim{Name: "b", ResourceClaimTemplateName: text("t")}
	pod := newPod(direct, made)
	if !Used(pod) || Used(newPod()) {
		t.Error("a pod has claims where it has none, or the other way round")
	}
	if _, err := Needs(pod); err == nil || err.Error() != `pod "ns/p": ResourceClaim not created yet` {
		t.Errorf("error %v", err)
	}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: text("p-b-x1")}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "ext"}
	got, err := Needs(pod)
	want := []Need{{"a", "one", false}, {"b", "p-b-x1", true}, {"", "ext", false}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	pod.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	if got, err := Needs(pod); err != nil || len(got) != 2 {
		t.Errorf("a claim that isn't needed: %v, %v", got, err)
	}
	_, err = Needs(newPod(corev1.PodResourceClaim{Name: "c"}))
	if err == nil || err.Error() != `pod "ns/p", spec.resourceClaim "c": none of the supported fields are set` {
		t.Errorf("error %v", err)
	}
	only := newPod()
	only.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "ext"}
	if !Used(only) {
		t.Error("a pod with extended resources has no claims")
	}
}

func claimFor(uid types.UID, drivers ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "c1"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: uid}},
		},
	}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Driver: d})
	}
	return c
}

func TestCheck(t *testing.T) {
	pod := newPod()
	owned := claimFor("u", "d")
	owner := metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
	owned.OwnerReferences = []metav1.OwnerReference{*owner}
	elsewhere := owned.DeepCopy()
	elsewhere.Namespace = "other"
	unallocated := claimFor("u")
	unallocated.Status.Allocation = nil
	for name, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		made  bool
		want  string
	}{
		"allowed":        {claim: claimFor("u", "e", "d", "e")},
		"its own":        {claim: owned, made: true},
		"without device": {claim: claimFor("u")},
		"another pod's": {
			claim: claimFor("x", "d"), want: "pod p (u) is not allowed to use ResourceClaim one (c1)",
		},
		"not made for it": {
			claim: claimFor("u", "d"), made: true,
			want: "ResourceClaim ns/one was not created for Pod ns/p (Pod is not owner)",
		},
		"elsewhere": {
			claim: elsewhere, made: true,
			want: "ResourceClaim other/one is not in the same namespace as Pod ns/p",
		},
		"not allocated":  {claim: unallocated, want: "ResourceClaim one: not allocated"},
		"without driver": {claim: claimFor("u", ""), want: "ResourceClaim one: DRA driver name is empty"},
	} {
		w, err := Check(pod, Need{Claim: "one", Generated: c.made}, c.claim, []types.UID{"u", "y", "z"})
		switch {
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		case c.want == "" && (err != nil || w.UID != "c1" || w.String() != "ns/one"):
			t.Errorf("%s: %v, %v", name, w, err)
		}
		if name == "allowed" &&
			(!reflect.DeepEqual(w.Drivers, []string{"d", "e"}) || !reflect.DeepEqual(w.Former, []types.UID{"y", "z"})) {
			t.Errorf("drivers %v, former users %v", w.Drivers, w.Former)
		}
	}
}

// bookOf has one claim of each name, of drivers d and e.
func bookOf(names ...string) Book {
	b := Book{}
	for _, name := range names {
		key := types.NamespacedName{Namespace: "ns", Name: name}
		c := &Claim{NamespacedName: key, UID: types.UID(name), Pods: map[types.UID]bool{"u": true}}
		b[key] = c
		c.Drivers = map[string]*Driver{
			"d": {Standing: Prepared, Devices: []Device{
				{Pool: "p", Name: "1", Requests: []string{"gpu/big"}, CDI: []string{"v/gpu=1", "v/all=" + name}},
				{Pool: "p", Name: "2", Requests: []string{"nic"}, CDI: []string{"v/nic=2"}},
			}},
			"e": {Standing: Prepared, Devices: []Device{{Pool: "q", Name: "3"}}},
		}
	}
	return b
}

func sick(driver string, d Device) (corev1.ResourceHealthStatus, string) {
	if driver == "d" && d.Name == "2" {
		return corev1.ResourceHealthStatusUnhealthy, "no link"
	}
	return corev1.ResourceHealthStatusHealthy, ""
}

func TestContainers(t *testing.T) {
	pod := newPod(corev1.PodResourceClaim{Name: "a", ResourceClaimName: text("one")},
		corev1.PodResourceClaim{Name: "b", ResourceClaimName: text("two")})
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "ext", RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "ext", ResourceName: "v.example/nic", RequestName: "nic"},
			{ContainerName: "ext", ResourceName: "v.example/none", RequestName: "gpu"},
			{ContainerName: "other", ResourceName: "v.example/nic", RequestName: "gpu"},
		},
	}
	container := func(name string, all ...corev1.ResourceClaim) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Claims: all}}
	}
	ext := container("ext")
	ext.Resources.Requests = corev1.ResourceList{
		"v.example/nic": resource.MustParse("1"), "v.example/none": resource.MustParse("0"),
	}
	pod.Spec.InitContainers = []corev1.Container{container("init", corev1.ResourceClaim{Name: "a", Request: "nic"})}
	pod.Spec.Containers = []corev1.Container{
		container("all", corev1.ResourceClaim{Name: "a"}),
		container("some", corev1.ResourceClaim{Name: "b", Request: "gpu"}, corev1.ResourceClaim{Name: "a", Request: "gpu"}),
		container("unknown", corev1.ResourceClaim{Name: "x"}, corev1.ResourceClaim{}),
		container("nothing"), ext,
	}
	book := bookOf("one", "two", "ext")
	needs, err := Needs(pod)
	if err != nil {
		t.Fatal(err)
	}
	device := func(name, id string) topic.AllocatedDevice {
		d := topic.AllocatedDevice{Resource: name, ID: id, Health: corev1.ResourceHealthStatusHealthy}
		if id == "v/nic=2" {
			d.Health, d.HealthMessage = corev1.ResourceHealthStatusUnhealthy, "no link"
		}
		return d
	}
	want := map[string]topic.ContainerAllocation{
		"init": {
			CDI:     []string{"v/nic=2"},
			Devices: []topic.AllocatedDevice{device("claim:a/nic", "e/q/3"), device("claim:a/nic", "v/nic=2")},
		},
		"all": {CDI: []string{"v/gpu=1", "v/all=one", "v/nic=2"}, Devices: []topic.AllocatedDevice{
			device("claim:a", "e/q/3"), device("claim:a", "v/gpu=1"), device("claim:a", "v/nic=2"),
		}},
		"some": {CDI: []string{"v/gpu=1", "v/all=two", "v/all=one"}, Devices: []topic.AllocatedDevice{
			device("claim:a/gpu", "e/q/3"), device("claim:a/gpu", "v/gpu=1"),
			device("claim:b/gpu", "e/q/3"), device("claim:b/gpu", "v/gpu=1"),
		}},
		"ext": {CDI: []string{"v/nic=2"}},
	}
	got := book.Containers(pod, needs, sick)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("container %s gets\n%+v, want\n%+v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d containers get something: %v", len(got), got)
	}
	uses := book.Uses(pod, needs)
	some := uses["some"]
	if len(some) != 2 || len(some[0].Devices) != 3 || some[0].Name != "two" || len(uses["ext"]) != 1 ||
		uses["nothing"] != nil {
		t.Errorf("uses %+v", uses)
	}
}

func TestInUse(t *testing.T) {
	b := bookOf("one", "two", "three")
	b[types.NamespacedName{Namespace: "ns", Name: "two"}].Drivers["d"].Standing = Unsure
	if got := b.InUse(); !reflect.DeepEqual(got, map[string]int{anyDriver: 2, "d": 2, "e": 2}) {
		t.Errorf("%v", got)
	}
}

// A claim that no pod uses, as a damaged or foreign file may have it, keeps no pod from using it.
func TestAClaimWithoutPods(t *testing.T) {
	b := bookOf("one")
	c := b.All()[0]
	c.Pods = map[types.UID]bool{}
	none := func(types.UID) bool { return false }
	step, err := b.Prepare("u", []Wanted{{NamespacedName: c.NamespacedName, UID: c.UID, Drivers: []string{"d", "e"}}},
		View{Registered: func(string) bool { return true }, Leaving: none})
	if err != nil || !step.Done || !step.Changed || !c.Pods["u"] {
		t.Errorf("%+v, %v", step, err)
	}
}

func TestHostileAnswers(t *testing.T) {
	b := bookOf("one")
	asked := b.All()
	err := Answered(CallPrepare, "d", asked, Answers{"x\n" + types.UID(strings.Repeat("y", 1000)): {}}, nil)
	if err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%.400v", err)
	}
}
