package csi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// Others is what attachable volumes without a driver need, such as those of iSCSI: the Node names them in use as it
// does those of drivers, and the controller attaches them.
type Others struct{ volumes *Volumes }

// Use notes that the node has, or is about to have, the volume of that name at a place. With an empty name it has it
// there no more.
func (o Others) Use(place, name string) {
	u := o.volumes.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.others[place] == name {
		return
	}
	if u.others[place] = name; name == "" {
		delete(u.others, place)
	}
	signal(u.changes)
}

// Waits is what the volume waits for before the node may have it; empty for nothing, as where nobody attaches volumes.
func (o Others) Waits(name string) string {
	if o.volumes.ports.Alone {
		return ""
	}
	return o.volumes.Attached.Waits(name)
}

// Labels say with which SELinux labels volumes are mounted.
func (o Others) Labels() *selinux.Book { return o.volumes.ports.Labels }

// Secret is what a secret that the volume names has.
func (o Others) Secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	secret, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.Secret, error) {
		return o.volumes.ports.Secrets.GetSecret(ctx, namespace, name)
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s error: %w", namespace, name, err)
	}
	return secret.Data, nil
}
