package criconfig

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccompProfile gives the container's profile, else the pod's, else the node's default. Profiles of type Localhost
// are files below <RootDir>/seccomp.
//
// Source: SecurityContext.seccompProfile, KEP-135, KEP-2413 (seccompDefault).
func seccompProfile(node *Node, pod *corev1.Pod, container *corev1.Container) (*runtimeapi.SecurityProfile, error) {
	var profile *corev1.SeccompProfile
	if sc := pod.Spec.SecurityContext; sc != nil {
		profile = sc.SeccompProfile
	}
	if sc := container.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		profile = sc.SeccompProfile
	}
	switch {
	case profile == nil && node.SeccompDefault:
		return securityProfile(runtimeapi.SecurityProfile_RuntimeDefault), nil
	case profile == nil:
		return securityProfile(runtimeapi.SecurityProfile_Unconfined), nil
	}
	switch profile.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return securityProfile(runtimeapi.SecurityProfile_RuntimeDefault), nil
	case corev1.SeccompProfileTypeLocalhost:
		return localhostSeccomp(node, profile)
	case corev1.SeccompProfileTypeUnconfined:
		return securityProfile(runtimeapi.SecurityProfile_Unconfined), nil
	}
	return nil, fmt.Errorf("unknown seccomp profile type: %q", profile.Type)
}

func localhostSeccomp(node *Node, profile *corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	if !filepath.IsLocal(*profile.LocalhostProfile) {
		return nil, fmt.Errorf("localhostProfile %q of seccompProfile must be a path below the node's seccomp directory",
			*profile.LocalhostProfile)
	}
	out := securityProfile(runtimeapi.SecurityProfile_Localhost)
	out.LocalhostRef = filepath.Join(node.RootDir, "seccomp", *profile.LocalhostProfile)
	return out, nil
}

// apparmorProfile returns the profile in CRI's present form and in its former one, which older runtimes read. Both are
// empty if the pod doesn't request a profile.
//
// Source: SecurityContext.appArmorProfile, KEP-24.
func apparmorProfile(pod *corev1.Pod, container *corev1.Container) (*runtimeapi.SecurityProfile, string, error) {
	profile := requestedAppArmor(pod, container)
	if profile == nil {
		return nil, "", nil
	}
	switch profile.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return securityProfile(runtimeapi.SecurityProfile_RuntimeDefault), corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
			nil
	case corev1.AppArmorProfileTypeUnconfined:
		return securityProfile(runtimeapi.SecurityProfile_Unconfined), corev1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, "", errors.New("missing localhost apparmor profile name")
		}
		out := securityProfile(runtimeapi.SecurityProfile_Localhost)
		out.LocalhostRef = *profile.LocalhostProfile
		return out, corev1.DeprecatedAppArmorBetaProfileNamePrefix + *profile.LocalhostProfile, nil
	}
	return nil, "", fmt.Errorf("unknown apparmor profile type: %q", profile.Type)
}

// requestedAppArmor is the profile that the container requests. The annotation comes after the container's field and
// before the pod's: nothing turns the annotations of pods from manifests into fields.
func requestedAppArmor(pod *corev1.Pod, container *corev1.Container) *corev1.AppArmorProfile {
	if sc := container.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	value := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]
	name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case local:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}

func securityProfile(kind runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind}
}
