"""Files of boot loaders, as real systems have them, in a folder of a test.

tests/cases/boot has grub.cfg as Debian 13's grub-mkconfig wrote them (captured; grub-probe answered for a disk that
does not exist). All others are synthetic: Ubuntu's, Red Hat's and systemd-boot's real shape, written by hand.
"""

from __future__ import annotations

from pathlib import Path

CASES = Path(__file__).parents[1] / "cases/boot"
NEW, OLD = "6.12.118+deb13-cloud-amd64", "6.12.43+deb13-cloud-amd64"
EL_NEW, EL_OLD = "5.14.0-570.12.1.el9_6.x86_64", "5.14.0-503.11.1.el9_5.x86_64"
UUID = "3fd2b9a0-6cf5-4e0f-8f53-8a1b9fbbd0d9"
MACHINE = "6a9857a393724b7a981ebb5b8495b9ea"
HEADER = "# GRUB Environment Block\n"
IDS = f"gnulinux-advanced-{UUID}>gnulinux-{OLD}-advanced-{UUID}"
OPTIONS = f"root=UUID={UUID} ro console=ttyS0"
LOADER = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
FIRMWARE = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
VARIABLES = "/sys/firmware/efi/efivars"

Files = dict[str, str | bytes]


def environment(**variables: str) -> str:
    """An environment block of 1024 bytes, as grub-editenv writes it."""
    return (HEADER + "".join(f"{name}={value}\n" for name, value in variables.items())).ljust(1024, "#")


def kernels(*releases: str) -> Files:
    files: Files = {f"/boot/vmlinuz-{release}": "kernel" for release in releases}
    return files | {f"/boot/initrd.img-{release}": "initramfs" for release in releases if "el9" not in release} | {
        f"/boot/initramfs-{release}.img": "initramfs" for release in releases if "el9" in release
    }  # fmt: skip


def debian(text: str = "", **variables: str) -> Files:
    """Debian 13 with GRUB_DEFAULT=saved and two kernels."""
    config = text or (CASES / "debian13.cfg").read_text()
    return {"/boot/grub/grub.cfg": config, "/boot/grub/grubenv": environment(**variables), **kernels(NEW, OLD)}


ENTRY = """\
menuentry '{title}' --class gnu-linux $menuentry_id_option '{id}' {{
	insmod gzio
	linux	/boot/vmlinuz-{release} {options}
	initrd	/boot/initrd.img-{release}
}}
"""


def ubuntu(first: str, *others: str, default: str = "0", options: str = OPTIONS) -> Files:
    """Ubuntu's grub.cfg: the first kernel as the first entry, all in the submenu, Ubuntu's own variables."""
    inside = "".join(
        ENTRY.format(
            title=f"Ubuntu, with Linux {one}", id=f"gnulinux-{one}-advanced-{UUID}", release=one, options=options
        )
        for one in (first, *others)
    )
    text = f"""\
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${{initrdfail}}" = 2 ]; then
   set initrdfail=
elif [ "${{initrdfail}}" = 1 ]; then
   set next_entry="${{prev_entry}}"
   set prev_entry=
   save_env prev_entry
   if [ "${{next_entry}}" ]; then
      set initrdfail=2
   fi
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="{default}"
fi
if [ x"${{feature_menuentry_id}}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option
function initrdfail {{
    if [ -n "${{have_grubenv}}" ]; then if [ -n "${{partuuid}}" ]; then
      if [ -z "${{initrdfail}}" ]; then
        set initrdfail=1
      fi
      save_env initrdfail
    fi; fi
}}
{ENTRY.format(title="Ubuntu", id=f"gnulinux-simple-{UUID}", release=first, options=options)}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-{UUID}' {{
{inside}}}
if [ "$grub_platform" = "efi" ]; then
	fwsetup --is-supported
	if [ "$?" = 0 ]; then
		menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {{
			fwsetup
		}}
	fi
fi
"""
    return {"/boot/grub/grub.cfg": text, "/boot/grub/grubenv": environment(), **kernels(first, *others)}


# A cloud image of Ubuntu: the first attempt has no initramfs.
WITHOUT_INITRD = """\
set default="0"
menuentry 'Ubuntu' {
  if [ "${initrdfail}" = 1 ]; then
    linux /boot/vmlinuz-6.8.0-1021-aws root=PARTUUID=2f1ee3c5 ro console=tty1
    initrd /boot/microcode.cpio /boot/initrd.img-6.8.0-1021-aws
  else
    linux /boot/vmlinuz-6.8.0-1021-aws root=PARTUUID=2f1ee3c5 ro console=tty1 panic=-1
  fi
  initrdfail
}
"""

REDHAT = """\
set pager=1
if [ -f ${config_directory}/grubenv ]; then
  load_env -f ${config_directory}/grubenv
elif [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
else
  menuentry_id_option=""
fi
export menuentry_id_option
function load_video {
  insmod all_video
}
insmod part_msdos
insmod xfs
set root='hd0,msdos1'
insmod increment
# The blscfg command parses the BootLoaderSpec files stored in /boot/loader/entries
insmod blscfg
blscfg
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
elif [ -z "${config_directory}" -a -f  $prefix/custom.cfg ]; then
  source $prefix/custom.cfg
fi
"""

# greenboot's rule of /etc/grub.d/08_fallback_counting
COUNTING = """\
insmod increment
if [ -n "${boot_counter}" -a "${boot_success}" = "0" ]; then
  if  [ "${boot_counter}" = "0" -o "${boot_counter}" = "-1" ]; then
    set default=1
    set boot_counter=-1
  else
    decrement boot_counter
  fi
  save_env boot_counter
fi
"""


def entry(release: str, options: str = "$kernelopts", title: str = "Rocky Linux", key: str = "linux") -> str:
    """An entry as kernel-install and grubby write it."""
    return (
        f"title {title} ({release}) 9.6 (Blue Onyx)\nversion {release}\n{key} /boot/vmlinuz-{release}\n"
        f"initrd /boot/initramfs-{release}.img\noptions {options}\ngrub_users $grub_users\ngrub_arg --unrestricted\n"
        "grub_class rocky\n"
    )


def rocky(*releases: str, machine: str = MACHINE, **variables: str) -> Files:
    variables = {"kernelopts": OPTIONS, **variables}
    files: Files = {
        "/boot/grub2/grub.cfg": REDHAT,
        "/boot/grub2/grubenv": environment(**variables),
        **kernels(*releases),
    }
    for release in releases:
        files[f"/boot/loader/entries/{machine}-{release}.conf"] = entry(release)
    rescue = f"/boot/loader/entries/{machine}-0-rescue.conf"
    files[rescue] = f"title rescue\nversion 0-rescue-{machine}\nlinux /boot/vmlinuz-0-rescue-{machine}\n"
    return files | {f"/boot/vmlinuz-0-rescue-{machine}": "kernel"}


def systemd_boot(default: str = "", part: str = "/efi", **entries: str) -> Files:
    """systemd-boot; `entries`: file name (with _ for -) ► content."""
    files: Files = {f"{part}/loader/loader.conf": f"timeout 3\n{f'default {default}' if default else ''}\n"}
    return files | {f"{part}/loader/entries/{name}.conf": text for name, text in entries.items()}


def type1(release: str, *, key: str = "", more: str = "") -> str:
    image = f"/{MACHINE}/{release}/linux"
    lines = [f"title Fedora {release}", f"version {release}", f"linux {image}", f"initrd /{MACHINE}/{release}/initrd"]
    return "\n".join([*lines, f"options {OPTIONS}", *([f"sort-key {key}"] if key else []), more]) + "\n"


def images(*releases: str, part: str = "/efi") -> Files:
    return {
        f"{part}/{MACHINE}/{release}/{name}": "content" for release in releases for name in ("linux", "initrd")
    }  # fmt: skip


def variable(name: str, text: str, vendor: str = LOADER) -> Files:
    return {f"{VARIABLES}/{name}-{vendor}": b"\x06\0\0\0" + text.encode("utf-16-le") + b"\0\0"}


def number(name: str, value: int) -> Files:
    return {f"{VARIABLES}/{name}-{FIRMWARE}": b"\x07\0\0\0" + value.to_bytes(2, "little")}


def write(root: Path, files: Files) -> Path:
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
