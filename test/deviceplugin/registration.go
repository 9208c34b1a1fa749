package deviceplugin

import (
	"context"

	devicepluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration is the service by which the agent finds a plugin in its registry.
type registration struct {
	registerapi.UnimplementedRegistrationServer
	plugin *Plugin
}

// GetInfo implements the registration.
func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	r.plugin.called("GetInfo")
	return &registerapi.PluginInfo{
		Type: registerapi.DevicePlugin, Name: r.plugin.Resource, Endpoint: r.plugin.socket(),
		SupportedVersions: devicepluginapi.SupportedVersions[:],
	}, nil
}

// NotifyRegistrationStatus implements the registration.
func (r registration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	r.plugin.called("NotifyRegistrationStatus")
	if s.GetPluginRegistered() {
		r.plugin.countRegistration()
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
