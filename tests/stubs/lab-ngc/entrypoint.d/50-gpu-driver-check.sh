# Without a driver: says so, and tells programs that there is only a processor. With one that is older than the image:
# puts the image's own libcuda in front, which is forward compatibility.
if ! { ldconfig -p | grep -q 'libcuda\.so\.1' && [[ -e /dev/nvidiactl || -e /dev/dxg ]]; }; then
  printf '\nWARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n'
  export NVIDIA_CPU_ONLY=1
elif [[ -r /proc/driver/nvidia/version ]]; then
  kernel=$(sed -nE 's/^NVRM version:.* ([0-9]+\.[0-9.]+) .*/\1/p' /proc/driver/nvidia/version)
  if [[ $(printf '%s\n%s\n' "$kernel" "$CUDA_DRIVER_VERSION" | sort -V | head -n 1) == "$CUDA_DRIVER_VERSION" ]]; then
    export _CUDA_COMPAT_STATUS="CUDA Driver OK"
  else
    export LD_LIBRARY_PATH="$_CUDA_COMPAT_PATH/lib.real${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export _CUDA_COMPAT_STATUS="CUDA Driver OK"
    printf '\nNOTE: CUDA Forward Compatibility mode ENABLED.\n'
    printf '  Using CUDA %s driver version %s with kernel driver version %s.\n' "${CUDA_VERSION%.*.*}" "$CUDA_DRIVER_VERSION" "$kernel"
  fi
fi
