package manifest

import (
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateVolume(v *corev1.Volume, volumes map[string]*corev1.Volume, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case v.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case volumes[v.Name] != nil:
		errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
	default:
		errs = append(errs, dnsLabel(v.Name, at.Child("name"))...)
	}
	volumes[v.Name] = v
	if n := sources(&v.VolumeSource); n > 1 {
		errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
	}
	switch {
	case v.HostPath != nil:
		errs = append(errs, validateHostPath(v.HostPath, at.Child("hostPath"))...)
	case v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0:
		errs = append(errs, field.Invalid(at.Child("emptyDir", "sizeLimit"), v.EmptyDir.SizeLimit.String(),
			"must not be negative"))
	case v.DownwardAPI != nil:
		errs = append(errs, fileMode(v.DownwardAPI.DefaultMode, at.Child("downwardAPI", "defaultMode"))...)
		errs = append(errs, validateDownward(v.DownwardAPI.Items, at.Child("downwardAPI", "items"))...)
	case v.Projected != nil:
		errs = append(errs, validateProjected(v.Projected, at.Child("projected"))...)
	case v.NFS != nil:
		errs = append(errs, validateNFS(v.NFS, at.Child("nfs"))...)
	}
	return errs
}

// sources counts the volume's types.
func sources(v *corev1.VolumeSource) (n int) {
	r := reflect.ValueOf(v).Elem()
	for i := range r.NumField() {
		if !r.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := noBacksteps(h.Path, at.Child("path"))
	if h.Type != nil {
		errs = append(errs, oneOf(*h.Type, at.Child("type"), corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathDirectory, corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket,
			corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
	}
	return errs
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n.Server == "" {
		errs = append(errs, field.Required(at.Child("server"), ""))
	}
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

func validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := fileMode(p.DefaultMode, at.Child("defaultMode"))
	paths := map[string]bool{}
	for i, s := range p.Sources {
		here := at.Child("sources").Index(i)
		n := count(s.Secret != nil, s.ConfigMap != nil, s.DownwardAPI != nil, s.ServiceAccountToken != nil,
			s.ClusterTrustBundle != nil, s.PodCertificate != nil)
		if n != 1 {
			errs = append(errs, field.Invalid(here, n, "must have exactly one source"))
		}
		if s.DownwardAPI == nil {
			continue
		}
		errs = append(errs, validateDownward(s.DownwardAPI.Items, here.Child("downwardAPI", "items"))...)
		for _, item := range s.DownwardAPI.Items {
			if paths[item.Path] {
				errs = append(errs, field.Duplicate(here.Child("downwardAPI", "items"), item.Path))
			}
			paths[item.Path] = true
		}
	}
	return errs
}

func validateDownward(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		here := at.Index(i)
		errs = append(errs, localPath(item.Path, here.Child("path"))...)
		errs = append(errs, fileMode(item.Mode, here.Child("mode"))...)
		if count(item.FieldRef != nil, item.ResourceFieldRef != nil) != 1 {
			errs = append(errs, field.Required(here, "exactly one of fieldRef and resourceFieldRef is required"))
		}
		if item.FieldRef != nil {
			errs = append(errs, validateFieldRef(item.FieldRef, volumeFields, here.Child("fieldRef"))...)
		}
		if ref := item.ResourceFieldRef; ref != nil {
			errs = append(errs, validateResourceRef(ref, here.Child("resourceFieldRef"))...)
			if ref.ContainerName == "" {
				errs = append(errs, field.Required(here.Child("resourceFieldRef", "containerName"), ""))
			}
		}
	}
	return errs
}

// localPath must stay below the volume's directory, and clear of the names of the atomic writer.
func localPath(p string, at *field.Path) field.ErrorList {
	switch {
	case p == "":
		return field.ErrorList{field.Required(at, "")}
	case path.IsAbs(p):
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	case strings.HasPrefix(p, ".."):
		return field.ErrorList{field.Invalid(at, p, "must not start with '..'")}
	}
	return noBacksteps(p, at)
}

func fileMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *mode, "must be between 0 and 0777 (octal)")}
}
