class Platform:
    device_name: str
    def is_cpu(self) -> bool: ...

current_platform: Platform

def cpu_platform_plugin() -> str | None: ...
