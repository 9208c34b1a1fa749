package criconfig

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maskedPaths and readonlyPaths protect what /proc and /sys tell about the node; the lists are the container
// runtimes' own defaults (SecurityContext.procMount).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// containerSecurity merges the pod's and the container's settings.
func containerSecurity(node *Node, in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effectiveContext(in.Pod, in.Container)
	if err := verifyNonRoot(&sc, in); err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:     capabilities(sc.Capabilities),
		Privileged:       isTrue(sc.Privileged),
		NamespaceOptions: namespaces(in.Pod, in.UserNamespace),
		SelinuxOptions:   selinuxOptions(sc.SELinuxOptions),
		RunAsUser:        int64Value(sc.RunAsUser),
		RunAsGroup:       int64Value(sc.RunAsGroup),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		MaskedPaths:      []string{},
		ReadonlyPaths:    []string{},
	}
	if sc.ProcMount == nil || *sc.ProcMount != corev1.UnmaskedProcMount {
		out.MaskedPaths = slices.Concat(maskedPaths, node.MaskedPaths)
		out.ReadonlyPaths = slices.Clone(readonlyPaths)
	}
	if out.RunAsUser == nil {
		setImageUser(out, in.ImageUser)
	}
	if in.TargetID != "" && out.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		out.NamespaceOptions.TargetId = in.TargetID
	}
	var err error
	if out.SupplementalGroupsPolicy, err = groupsPolicy(in.Pod.Spec.SecurityContext); err != nil {
		return nil, err
	}
	out.SupplementalGroups = supplementalGroups(in.Pod.Spec.SecurityContext, in.SupplementalGroups)
	if out.Seccomp, err = seccompProfile(node, in.Pod, in.Container); err != nil {
		return nil, err
	}
	//nolint:staticcheck // runtimes older than the field Apparmor read the deprecated one
	out.Apparmor, out.ApparmorProfile, err = apparmorProfile(in.Pod, in.Container)
	return out, err
}

// effectiveContext gives the container's settings, with the pod's where both know the field and the container
// says nothing.
func effectiveContext(pod *corev1.Pod, container *corev1.Container) corev1.SecurityContext {
	var sc corev1.SecurityContext
	if container.SecurityContext != nil {
		sc = *container.SecurityContext
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return sc
	}
	if sc.SELinuxOptions == nil {
		sc.SELinuxOptions = p.SELinuxOptions
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser = p.RunAsUser
	}
	if sc.RunAsGroup == nil {
		sc.RunAsGroup = p.RunAsGroup
	}
	if sc.RunAsNonRoot == nil {
		sc.RunAsNonRoot = p.RunAsNonRoot
	}
	return sc
}

// verifyNonRoot refuses a container that would run as root although it says it doesn't. A user name can't
// be verified: only the image knows its number.
func verifyNonRoot(sc *corev1.SecurityContext, in ContainerInput) error {
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID),
		in.Container.Name)
	if sc.RunAsUser != nil {
		if *sc.RunAsUser == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	uid := in.ImageUser.UID
	if uid == nil && in.ImageUser.Username != "" {
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s",
			in.ImageUser.Username, where)
	}
	if uid == nil || *uid == 0 {
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	if errs := validation.IsValidUserID(*uid); len(errs) > 0 {
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(2147483647)): %s %s",
			*uid, strings.Join(errs, "; "), where)
	}
	return nil
}

// setImageUser makes explicit whom the image runs as: an image that doesn't say runs as root.
func setImageUser(out *runtimeapi.LinuxContainerSecurityContext, user ImageUser) {
	switch {
	case user.UID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user.UID}
	case user.Username != "":
		out.RunAsUsername = user.Username
	default:
		out.RunAsUser = &runtimeapi.Int64Value{}
	}
}

// supplementalGroups are the pod's fsGroup and supplementalGroups, and those that volumes need.
func supplementalGroups(sc *corev1.PodSecurityContext, volumes []int64) []int64 {
	var groups []int64
	if sc != nil {
		if sc.FSGroup != nil {
			groups = append(groups, *sc.FSGroup)
		}
		groups = append(groups, sc.SupplementalGroups...)
	}
	return append(groups, volumes...)
}

func groupsPolicy(sc *corev1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if sc == nil || sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	policy, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*sc.SupplementalGroupsPolicy)]
	if !ok {
		return 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *sc.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	names := func(list []corev1.Capability) []string {
		out := make([]string, 0, len(list))
		for _, name := range list {
			out = append(out, string(name))
		}
		return out
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

func selinuxOptions(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func isTrue(b *bool) bool { return b != nil && *b }
