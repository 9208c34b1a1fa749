package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/tools"
)

// The drivers: of volumes of pods' own specs, of disks that are attached, of a cloud's disks, which have a kind of
// their own in pods and persistent volumes, and one that fails. The last one doesn't run on this node.
const (
	ownDriver    = "own.csi.test"
	diskDriver   = "disk.csi.test"
	cloudDriver  = "ebs.csi.aws.com"
	illDriver    = "ill.csi.test"
	absentDriver = "absent.csi.test"
)

// csiPods are pods with volumes of these drivers, by name; $INLINE is the ID of one of the cloud's disks.
var csiPods = map[string]string{
	"own": "  securityContext: {fsGroup: 4321}\n" + app(forever+withData) + `
  volumes:
  - {name: data, csi: {driver: ` + ownDriver + `, volumeAttributes: {colour: blue}, nodePublishSecretRef: {name: key}}}
`,
	"disk": "  securityContext: {fsGroup: 4321, fsGroupChangePolicy: OnRootMismatch}\n" + app(forever+`,
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /below, subPath: below}]`) + withClaim,
	"raw": app(forever+", volumeDevices: [{name: data, devicePath: /dev/xvda}]") + withClaim,
	"cloud": "  securityContext: {fsGroup: 4321}\n" + app(forever+`,
    volumeMounts: [{name: data, mountPath: /data}, {name: inline, mountPath: /inline}]`) + withClaim + `
  - {name: inline, awsElasticBlockStore: {volumeID: $INLINE, fsType: ext4}}
`,
	"ill":    app(forever+withData) + "  volumes: [{name: data, csi: {driver: " + illDriver + "}}]\n",
	"absent": app(forever+withData) + "  volumes: [{name: data, csi: {driver: " + absentDriver + "}}]\n",
}

const (
	withData = ", volumeMounts: [{name: data, mountPath: /data}]"
	// withClaim has the claim that is named as the pod.
	withClaim = "  volumes:\n  - {name: data, persistentVolumeClaim: {claimName: $POD}}\n"
	// showVolumes shows the volumes of a container: their owners and rights, and how they are mounted or how large they
	// are.
	showVolumes = `for d in /data /below /inline; do [ ! -e $d ] || stat -c '%n %u %g %a' $d; done
grep -E ' /(data|below|inline) ' /proc/mounts; [ ! -e /dev/xvda ] || blockdev --getsize64 /dev/xvda`
)

// TestSameCSI has the same pods with volumes of CSI drivers under either agent, with the real attach-detach controller
// and external-attacher. It compares what the drivers are asked for in each volume's life, what the containers see, the
// CSINode, what the Node tells of volumes, and the pods' statuses and Events. As with stories, what differs counts if
// it does each time.
func TestSameCSI(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	s := newStage(t, bed)
	different := s.compareCSI(t)
	for told := 1; told < tellings && different != "" && !t.Failed(); told++ {
		t.Logf("telling %d:%s", told, different)
		different = s.compareCSI(t)
	}
	if different != "" {
		t.Errorf("- kubelet, + kubelot%s", different)
	}
}

// compareCSI plays the pods under both agents, and returns what differs.
func (s *stage) compareCSI(t *testing.T) string {
	t.Helper()
	told := map[node.Agent]map[string]string{}
	for _, s.agent = range []node.Agent{node.Kubelet, node.Kubelot} {
		if err := s.bed.StartNode(t.Context(), s.agent); err != nil {
			t.Fatal(err)
		}
		if !t.Run(string(s.agent), func(t *testing.T) { told[s.agent] = s.withDrivers(t) }) {
			return ""
		}
		dump(t, string(s.agent)+"-csi", told[s.agent])
		s.strike(t)
		if err := s.bed.Client.StorageV1().CSINodes().Delete(t.Context(), kit.NodeName,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	want, got := told[node.Kubelet], told[node.Kubelot]
	names := maps.Clone(want)
	maps.Copy(names, got)
	var different strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if lines := diff(want[name], got[name]); len(lines) > 0 {
			fmt.Fprintf(&different, "\n%s\n%s", name, strings.Join(lines, "\n"))
		}
	}
	return different.String()
}

// withDrivers plays the pods with their drivers until all of it is gone, and tells what is to be compared.
func (s *stage) withDrivers(t *testing.T) map[string]string {
	t.Helper()
	s.ns = s.bed.Namespace(t)
	file := storagev1.FileFSGroupPolicy
	yes, ephemeral := true, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	own := s.bed.CSIDriver(t, ownDriver, storagev1.CSIDriverSpec{
		VolumeLifecycleModes: ephemeral, PodInfoOnMount: &yes, FSGroupPolicy: &file,
		TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
	}, "--no-attach")
	disk := s.bed.CSIDriver(t, diskDriver, storagev1.CSIDriverSpec{}, "--topology="+diskDriver+"/zone=a",
		"--max-volumes=9")
	cloud := s.bed.CSIDriver(t, cloudDriver, storagev1.CSIDriverSpec{FSGroupPolicy: &file}, "--mount-group")
	ill := s.bed.CSIDriver(t, illDriver, storagev1.CSIDriverSpec{VolumeLifecycleModes: ephemeral}, "--no-attach")
	s.bed.CSIDriver(t, absentDriver, storagev1.CSIDriverSpec{VolumeLifecycleModes: ephemeral})
	drivers := []*kit.Driver{own, disk, cloud, ill}
	for _, d := range drivers {
		d.Start()
		d.Registered(1, time.Now())
	}
	ill.Fault("NodePublishVolume", &csidriver.Fault{Code: codes.Internal, Message: "not today"})
	disk.Sidecars(tools.Attacher)
	cloud.Sidecars(tools.Attacher)

	inline := cloud.Provision("inline")
	names := s.claims(t, map[string]corev1.PersistentVolumeSource{
		"disk": {CSI: &corev1.CSIPersistentVolumeSource{
			Driver: diskDriver, VolumeHandle: disk.Provision("disk"), FSType: "ext4",
			VolumeAttributes:     map[string]string{"colour": "blue"},
			NodeStageSecretRef:   &corev1.SecretReference{Name: "key", Namespace: s.ns.Name},
			NodePublishSecretRef: &corev1.SecretReference{Name: "key", Namespace: s.ns.Name},
		}},
		"raw": {CSI: &corev1.CSIPersistentVolumeSource{Driver: diskDriver, VolumeHandle: disk.Provision("raw")}},
		"cloud": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: cloud.Provision("claimed"), FSType: "ext4",
		}},
	})
	s.ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: s3cret}\n")
	for name, spec := range csiPods {
		s.ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 2\n" +
			strings.NewReplacer("$POD", name, "$INLINE", inline).Replace(spec))
	}

	told := s.withVolumes(t)
	s.curtain(t)
	for name := range csiPods {
		told["Events of "+name] = ofVolumes(name, s.events(t, name))
	}
	for _, d := range drivers {
		maps.Copy(told, callsOf(t, d))
	}
	hidden := strings.NewReplacer(names...)
	shown := map[string]string{}
	for name, text := range told {
		shown[s.anonymous(name)] = withoutTokens(s.anonymous(hidden.Replace(text)))
	}
	return shown
}

// claims makes the volumes and their claims, and returns the names of the volumes, each with what to call it, since
// they differ from turn to turn.
func (s *stage) claims(t *testing.T, sources map[string]corev1.PersistentVolumeSource) (names []string) {
	t.Helper()
	mode := map[string]corev1.PersistentVolumeMode{"raw": corev1.PersistentVolumeBlock}
	access := map[string]corev1.PersistentVolumeAccessMode{"disk": corev1.ReadWriteOncePod}
	for claim, source := range sources {
		mode, access := mode[claim], access[claim]
		if mode == "" {
			mode = corev1.PersistentVolumeFilesystem
		}
		if access == "" {
			access = corev1.ReadWriteOnce
		}
		pv := s.ns.Volume(source, func(spec *corev1.PersistentVolumeSpec) {
			s.ns.For(claim, mode)(spec)
			spec.AccessModes = []corev1.PersistentVolumeAccessMode{access}
			if claim == "disk" {
				spec.MountOptions = []string{"noatime"}
			}
		})
		// Events are anonymous already.
		names = append(names, pv, "PV-"+claim, strings.ReplaceAll(pv, s.ns.Name, "NAMESPACE"), "PV-"+claim)
		s.ns.Apply(fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {storageClassName: "+
			"%s, volumeMode: %s, accessModes: [%s], resources: {requests: {storage: 1Mi}}}\n", claim, s.ns.Name, mode, access))
	}
	return names
}

// withVolumes waits until the pods have settled, ends them, and waits until their volumes are detached. It tells of the
// pods that run, and of the node before and after.
func (s *stage) withVolumes(t *testing.T) map[string]string {
	t.Helper()
	told := map[string]string{}
	pods := map[string]*corev1.Pod{}
	for name := range csiPods {
		if name == "ill" || name == "absent" {
			s.ns.Event(name, "FailedMount", "")
			pods[name] = s.ns.Wait(name, "there", func(*corev1.Pod) bool { return true })
			continue
		}
		p := s.ns.Running(name)
		pods[name] = p
		told["status of "+name] = s.status(t, p)
		told["inside "+name] = s.ns.Exec(p, "app", showVolumes)
	}
	const attached = 4
	kit.Eventually(t, "the Node's volumes", func() error { return s.volumesOfNode(t, attached) })
	told["node"] = s.driversOnNode(t)
	for name, p := range pods {
		s.ns.Delete(name, -1)
		s.ns.Gone(p)
	}
	kit.Eventually(t, "the volumes to be detached", func() error { return s.volumesOfNode(t, 0) })
	return told
}

// volumesOfNode is an error unless the Node has so many volumes in use and attached, and there are as many attachments.
func (s *stage) volumesOfNode(t *testing.T, n int) error {
	t.Helper()
	list, err := s.bed.Client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	status := s.bed.KubeNode(t).Status
	if len(status.VolumesInUse) != n || len(status.VolumesAttached) != n || len(list.Items) != n {
		return fmt.Errorf("in use are %q, attached %v, by %d VolumeAttachments", status.VolumesInUse, status.VolumesAttached,
			len(list.Items))
	}
	return nil
}

// driversOnNode is what the Node and the CSINode tell of drivers and their volumes, as YAML.
func (s *stage) driversOnNode(t *testing.T) string {
	t.Helper()
	n := s.bed.KubeNode(t)
	c, err := s.bed.Client.StorageV1().CSINodes().Get(t.Context(), kit.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(n.Status.VolumesInUse)
	slices.SortFunc(n.Status.VolumesAttached, func(a, b corev1.AttachedVolume) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	slices.SortFunc(c.Spec.Drivers, func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
	out, err := yaml.Marshal(map[string]any{
		"annotations": n.Annotations, "labels": n.Labels,
		"inUse": n.Status.VolumesInUse, "attached": n.Status.VolumesAttached,
		"csiNode": map[string]any{"owners": c.OwnerReferences, "annotations": c.Annotations, "drivers": c.Spec.Drivers},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// getsClient is what the kubelet says before its words about a driver that isn't there.
const getsClient = "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: "

// ofVolumes leaves the Events of failures to a pod whose volume fails: beside it kubelot has the sandbox made and the
// image pulled, and the kubelet nothing.
func ofVolumes(pod, events string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(strings.ReplaceAll(events, getsClient, ""), "\n"),
		func(line string) bool {
			fails := pod == "ill" || pod == "absent"
			return fails && !strings.HasPrefix(line, "Warning ") ||
				strings.Contains(line, "no relationship found between node ") // the kubelet may be early, and says so
		}), "")
}

// callsOf are the calls that change a volume, with their requests and answers, by driver and volume. A call that is
// repeated counts once.
func callsOf(t *testing.T, d *kit.Driver) map[string]string {
	t.Helper()
	calls, err := csidriver.ReadCalls(d.State)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[int64]string{}
	for _, c := range calls {
		if c.End {
			answers[c.ID] = c.Code + " " + c.Message
		}
	}
	byVolume := map[string][]string{}
	for _, c := range calls {
		if c.End || c.Gone || !strings.HasPrefix(c.Method, "Node") || strings.HasPrefix(c.Method, "NodeGet") {
			continue
		}
		var request map[string]any
		if err := json.Unmarshal(c.Request, &request); err != nil {
			t.Fatal(err)
		}
		out, err := yaml.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		volume := fmt.Sprintf("calls of %s for %v", d.Name, request["volumeId"])
		byVolume[volume] = append(byVolume[volume], c.Method+": "+answers[c.ID]+"\n"+string(out))
	}
	told := map[string]string{}
	for volume, list := range byVolume {
		told[volume] = strings.Join(slices.Compact(list), "")
	}
	return told
}

var (
	token      = regexp.MustCompile(`eyJ[A-Za-z0-9_.-]+`)
	loopDevice = regexp.MustCompile(`/dev/loop\d+`)
)

func withoutTokens(text string) string {
	return loopDevice.ReplaceAllString(token.ReplaceAllString(text, "TOKEN"), "LOOP")
}
